"""Splits sentences into words; dies once, at a sentence that a setting names, and fails another one once."""

import os
import sys

from pystorm import Bolt


class Split(Bolt):
    def initialize(self, conf, context):
        self.out = conf["out"]
        self.marks = {conf.get("dies.at"): "died", conf.get("fails.at"): "failed"}

    def process(self, tup):
        number = int(tup.values.sentence.rsplit(" ", 1)[1])
        mark = self.marks.get(number)
        if mark and self.is_first(mark):
            if mark == "died":
                print("it dies", file=sys.stderr, flush=True)
                os._exit(9)
            raise ValueError("it fails")
        for word in tup.values.sentence.split():
            tasks = self.emit([word], need_task_ids=True)
            assert len(tasks) == 1, tasks

    def is_first(self, mark):
        try:
            open(os.path.join(self.out, mark), "x").close()
            return True
        except FileExistsError:
            return False


if __name__ == "__main__":
    Split().run()
