"""The drill with BullMQ: python bullmq_queue.py SERVER-COMMAND..., where NODE_PATH names a folder with bullmq."""

import os
import subprocess

import drill

SCRIPT = str(drill.HERE / "bullmq.js")


class BullMqQueue(drill.Queue):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        environment = os.environ | {"DRILL_PORT": str(port)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self.producer = subprocess.Popen(["node", SCRIPT, "enqueue"], env=environment, **pipes)

    def enqueue(self, number: int) -> None:
        self.producer.stdin.write(f"{number}\n")
        answer = self.producer.stdout.readline().strip()
        if answer != "ok":
            raise RuntimeError(answer or "the producer has ended")

    def worker(self, name: str) -> list[str]:
        return ["node", SCRIPT, "work"]


if __name__ == "__main__":
    drill.main(BullMqQueue)
