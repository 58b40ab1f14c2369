"""What a job of the drills does: it says that it has started, waits until it is released, and says that it is done."""

import os
import pathlib
import time

# A job whose drill is gone ends, too.
SECONDS_MAX = 60


def work(number: int) -> None:
    folder = pathlib.Path(os.environ["DRILL_FOLDER"])
    run = f"{number}.{os.getpid()}.{os.getppid()}"
    (folder / "started" / run).touch()
    deadline = time.monotonic() + SECONDS_MAX
    while not any((folder / "released" / name).exists() for name in (run, "all")):
        if time.monotonic() > deadline:
            raise TimeoutError("nobody released the job")
        time.sleep(0.005)
    (folder / "done" / run).touch()
