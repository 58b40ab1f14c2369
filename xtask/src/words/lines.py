"""Emits the lines of a file; when all are acknowledged, writes how many seconds that took."""

import os
import sys
import time

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
            if not self.emitted:
                self.start = time.monotonic()
            self.emitted += 1
            self.emit([line], tup_id=self.emitted)
        elif self.has_more:
            self.has_more = False
            self.end_if_done()

    def ack(self, tup_id):
        super().ack(tup_id)
        self.acked += 1
        self.end_if_done()

    def end_if_done(self):
        if self.has_more or self.acked < self.emitted:
            return
        path = os.path.join(self.out, "acked")
        with open(path + "-", "w") as file:
            file.write(str(time.monotonic() - self.start))
        os.rename(path + "-", path)


if __name__ == "__main__":
    Lines(serializer=sys.argv[1]).run()
