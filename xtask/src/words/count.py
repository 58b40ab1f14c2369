"""Counts words, and writes its counts when its input ends."""

import atexit
import collections
import os
import sys

from pystorm import Bolt


class Count(Bolt):
    def initialize(self, conf, context):
        self.counts = collections.Counter()
        path = os.path.join(conf["out"], f"counts-{context['taskid']}")
        atexit.register(lambda: self.write(path))

    def process(self, tup):
        self.counts[tup.values.word] += 1

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{word} {count}\n" for word, count in self.counts.items())


if __name__ == "__main__":
    Count(serializer=sys.argv[1]).run()
