"""Emits numbered sentences; when all are acknowledged, writes how many there were."""

import os
import sys

from pystorm import ReliableSpout


class Sentences(ReliableSpout):
    def initialize(self, conf, context):
        self.count = conf["sentences.count"]
        self.out = conf["out"]
        self.next = self.acked = 0

    def next_tuple(self):
        if self.next < self.count:
            number, self.next = self.next, self.next + 1
            self.emit([f"word{number % 7} is é word of {number}"], tup_id=f"sentence-{number}")

    def ack(self, tup_id):
        super().ack(tup_id)
        self.acked += 1
        if self.acked == self.count:
            with open(os.path.join(self.out, "acked"), "w") as file:
                file.write(str(self.acked))


if __name__ == "__main__":
    Sentences(serializer=sys.argv[1]).run()
