"""Splits lines into words."""

import sys

from pystorm import Bolt


class Split(Bolt):
    def process(self, tup):
        for word in tup.values.line.split():
            self.emit([word])


if __name__ == "__main__":
    Split(serializer=sys.argv[1]).run()
