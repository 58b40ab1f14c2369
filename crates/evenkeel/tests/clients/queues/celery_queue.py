"""The drill with Celery: python celery_queue.py SERVER-COMMAND..."""

import os
import sys

import celery
import drill
import work

# A worker looks for jobs of workers that are gone when it starts, and then every 100 s by default.
BROKER_OPTIONS = {
    "visibility_timeout": 2,
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
    "unacked_mutex_expire": 2,
}


def application(port: str) -> celery.Celery:
    """Jobs are acknowledged when they are done: those of a killed worker run again after the visibility timeout."""
    url = f"redis://127.0.0.1:{port}/0"
    app = celery.Celery("drill", broker=url, backend=url)
    app.conf.update(
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        broker_transport_options=BROKER_OPTIONS,
        broker_connection_retry_on_startup=True,
    )
    return app


app = application(os.environ.get("DRILL_PORT", "0"))
job = app.task(work.work, name="job")


class CeleryQueue(drill.Queue):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.app = application(str(port))

    def enqueue(self, number: int) -> None:
        self.app.send_task("job", (number,), retry=False)

    def worker(self, name: str) -> list[str]:
        options = ["-c", "1", "-n", name, "-l", "INFO"]
        return [sys.executable, "-m", "celery", "-A", "celery_queue", "worker", *options]


if __name__ == "__main__":
    drill.main(CeleryQueue)
