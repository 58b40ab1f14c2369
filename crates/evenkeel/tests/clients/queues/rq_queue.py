"""The drill with RQ: python rq_queue.py SERVER-COMMAND..."""

import sys
import time

import drill
import rq
import rq.registry

# Later than the expiry of every job that is running.
FAR_SECONDS = 3_600


class RqQueue(drill.Queue):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.queue = rq.Queue("drill", connection=drill.client(port))

    def enqueue(self, number: int) -> None:
        self.queue.enqueue("work.work", number)

    def worker(self, name: str) -> list[str]:
        url = f"redis://127.0.0.1:{self.port}"
        return [sys.executable, "-m", "rq.cli", "worker", "--url", url, "--name", name, "drill"]

    def recover(self) -> None:
        """A worker's maintenance does the first step for jobs without a heartbeat, after a minute and more."""
        if self.queue.count > 0:
            return
        started = rq.registry.StartedJobRegistry(queue=self.queue)
        started.cleanup(timestamp=time.time() + FAR_SECONDS)
        failed = rq.registry.FailedJobRegistry(queue=self.queue)
        for job in failed.get_job_ids():
            failed.requeue(job)


if __name__ == "__main__":
    drill.main(RqQueue)
