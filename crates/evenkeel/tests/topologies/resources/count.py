"""Counts words, and writes its counts when its input ends. Ticks are counted, too."""

import atexit
import collections
import json
import os
import sys

from pystorm import Bolt


class Count(Bolt):
    def initialize(self, conf, context):
        self.counts = collections.Counter()
        self.ticks = 0
        path = os.path.join(conf["out"], f"counts-{context['taskid']}")
        atexit.register(lambda: self.write(path))

    def process(self, tup):
        self.counts[tup.values.word] += 1
        self.emit([tup.values.word, self.counts[tup.values.word]])

    def process_tick(self, tup):
        self.ticks += 1

    def write(self, path):
        with open(path, "w") as file:
            json.dump({"counts": self.counts, "ticks": self.ticks}, file)


if __name__ == "__main__":
    Count(serializer=sys.argv[1]).run()
