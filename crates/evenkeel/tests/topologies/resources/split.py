"""Splits sentences into words; settings name sentences at which it dies once, fails once, or fails each time."""

import os
import sys

from pystorm import Bolt


class Split(Bolt):
    def initialize(self, conf, context):
        self.out = conf["out"]
        self.never = conf.get("fails.always.at")
        self.exit_on_exception = self.never is None
        self.marks = {conf.get("dies.at"): "died", conf.get("fails.at"): "failed"}

    def process(self, tup):
        number = int(tup.values.sentence.rsplit(" ", 1)[1])
        if number == self.never:
            raise ValueError("it always fails")
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
    Split(serializer=sys.argv[1]).run()
