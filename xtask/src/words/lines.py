"""Emits the lines of a file; when all are acknowledged, writes how many there were."""

import os
import sys

from pystorm import ReliableSpout


class Lines(ReliableSpout):
    def initialize(self, conf, context):
        self.out = conf["out"]
        self.lines = open(os.path.join(self.out, "text"), encoding="utf-8")
        self.emitted = self.acked = 0
        self.has_more = True

    def next_tuple(self):
        line = self.lines.readline() if self.has_more else ""
        if line:
            self.emitted += 1
            self.emit([line], tup_id=self.emitted)
        else:
            self.has_more = False

    def ack(self, tup_id):
        super().ack(tup_id)
        self.acked += 1
        if not self.has_more and self.acked == self.emitted:
            with open(os.path.join(self.out, "acked"), "w") as file:
                file.write(str(self.acked))


if __name__ == "__main__":
    Lines(serializer=sys.argv[1]).run()
