"""Job queues whose server is killed with SIGKILL: the part that all queues share.

Two workers run one job at a time. Jobs are enqueued without a pause until the server is killed. Twice it is killed while both
workers run a job, and started again on the same folder and port. During the first kill one job ends without a server; during the
second one a worker is killed with its job. At the end every job whose enqueue was acknowledged has run to its end at least once.

A job waits until it is released (module work). So no worker takes a job when the server is killed: Celery pops a job before it
notes that the job is its own, and a kill in between loses the job with any server.

The arguments are the command of the server, in which {dir} and {port} are replaced. The same run with Redis:
    python rq_queue.py redis-server --dir {dir} --port {port} --save '' --appendonly yes --appendfsync always
"""

import ctypes
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

HERE = pathlib.Path(__file__).parent
WORKERS = 2
# Enqueued before each kill, while both workers are busy.
ENQUEUED_MIN = 20
SECONDS_MAX = 50
POLL_SECONDS = 0.005
PR_SET_CHILD_SUBREAPER = 36


def client(port: int) -> redis.Redis:
    """A client that reports each lost connection: what a retry repeats is not counted twice."""
    return redis.Redis(port=port, retry=Retry(NoBackoff(), 0), socket_timeout=5)


class Queue:
    """What one library does: its drill makes a subclass."""

    def __init__(self, port: int) -> None:
        self.port = port

    def enqueue(self, number: int) -> None:
        """Enqueues job `number`; returns when that is acknowledged, and raises otherwise."""
        raise NotImplementedError

    def worker(self, name: str) -> list[str]:
        """The command of a worker."""
        raise NotImplementedError

    def recover(self) -> None:
        """Enqueues again what a worker took that is gone, where the library does not do it by itself in time."""


class Producer(threading.Thread):
    """Enqueues one job after the other, and counts those that were acknowledged."""

    def __init__(self, queue: Queue, first: int) -> None:
        super().__init__(daemon=True)
        self.queue, self.number = queue, first
        self.acknowledged: set[int] = set()
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                self.queue.enqueue(self.number)
                self.acknowledged.add(self.number)
            except Exception:  # each library has its own; a job with an error may run or not
                self.stopped.wait(POLL_SECONDS)
            self.number += 1


class Drill:
    """A server, workers and the files of their jobs, in one folder."""

    def __init__(self, folder: pathlib.Path, command: list[str]) -> None:
        self.folder, self.command = folder, command
        self.deadline = time.monotonic() + SECONDS_MAX
        self.workers: list[subprocess.Popen] = []
        self.started_count = 0
        self.acknowledged: set[int] = set()
        self.number = 0
        for name in ("data", "started", "released", "done"):
            (folder / name).mkdir()
        self.start_server_on_free_port()

    def until(self, what: str, holds) -> None:
        """Waits until `holds`; starts workers again that have ended while the server runs."""
        while not holds():
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"{what}: not within {SECONDS_MAX} s")
            if self.server.poll() is None:
                self.tend_workers()
            time.sleep(POLL_SECONDS)

    def spawn(self, command: list[str], log: str) -> subprocess.Popen:
        environment = os.environ | {"PYTHONPATH": str(HERE), "DRILL_FOLDER": str(self.folder), "DRILL_PORT": str(self.port)}
        with open(self.folder / f"{log}.log", "ab") as file:
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def start_server(self) -> bool:
        """Starts the server, and waits until it answers; false if it ended instead."""
        words = {"dir": self.folder / "data", "port": self.port}
        self.server = self.spawn([word.format(**words) for word in self.command], "server")
        self.until("the server answers", lambda: self.server.poll() is not None or answers(self.port))
        return self.server.poll() is None

    def start_server_on_free_port(self) -> None:
        for _ in range(10):
            self.port = free_port()
            if self.start_server():
                return
        raise RuntimeError("the server did not start")

    def kill_server(self) -> None:
        self.server.kill()
        self.server.wait()

    def tend_workers(self) -> None:
        """Replaces each worker that has ended."""
        for at, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self.workers[at] = self.start_worker()

    def start_worker(self) -> subprocess.Popen:
        self.started_count += 1
        name = f"worker-{self.started_count}"
        return self.spawn(self.queue.worker(name), name)

    def names(self, folder: str) -> set[str]:
        return set(os.listdir(self.folder / folder))

    def running(self) -> list[str]:
        """Runs that have started and not ended, as NUMBER.PID.PARENT."""
        return sorted(self.names("started") - self.names("done"))

    def is_done(self, numbers: set[int]) -> bool:
        return numbers <= {int(name.split(".")[0]) for name in self.names("done")}

    def release(self, name: str) -> None:
        (self.folder / "released" / name).touch()

    def end_job(self, run: str) -> None:
        """Releases a run and waits for its end."""
        self.release(run)
        self.until(f"{run} ends", lambda: run in self.names("done"))

    def kill_worker(self, run: str) -> None:
        """Kills the worker that a job runs in, and the job."""
        _, job, worker = run.split(".")
        os.kill(int(worker), signal.SIGKILL)
        os.kill(int(job), signal.SIGKILL)
        (self.folder / "started" / run).unlink()

    def enqueue_for_each_worker(self) -> None:
        """Enqueues the jobs of the first kill; those of the second are left by the first."""
        for self.number in range(WORKERS):
            self.queue.enqueue(self.number)
            self.acknowledged.add(self.number)
        self.number += 1

    def enqueue_until_killed(self) -> list[str]:
        """Kills the server while both workers run a job and jobs are enqueued; returns the runs."""
        self.until("all workers are busy", lambda: len(self.running()) == WORKERS)
        producer = Producer(self.queue, self.number)
        producer.start()
        self.until("jobs are enqueued", lambda: len(producer.acknowledged) >= ENQUEUED_MIN)
        runs = self.running()
        self.kill_server()
        producer.stopped.set()
        self.producer = producer
        return runs

    def restart_server(self) -> None:
        """Starts the server again; the producer, which may wait for it, ends then."""
        if not self.start_server():
            raise RuntimeError("the server did not start again")
        self.until("the producer ends", lambda: not self.producer.is_alive())
        self.acknowledged |= self.producer.acknowledged
        self.number = self.producer.number

    def run(self, queue: Queue) -> None:
        self.queue = queue
        self.workers = [self.start_worker() for _ in range(WORKERS)]
        self.enqueue_for_each_worker()
        first, second = self.enqueue_until_killed()
        self.end_job(first)
        self.restart_server()
        self.end_job(second)
        first, second = self.enqueue_until_killed()
        self.kill_worker(first)
        self.restart_server()
        self.end_job(second)
        self.release("all")
        self.until("all acknowledged jobs are done", self.is_all_done)
        runs, jobs = len(self.names("done")), len(self.acknowledged)
        print(f"{jobs} jobs acknowledged, {runs} runs, {self.started_count} workers")

    def is_all_done(self) -> bool:
        if not self.is_done(self.acknowledged) and not self.running():
            self.queue.recover()
        return self.is_done(self.acknowledged)

    def explain(self) -> None:
        """Prints what is missing, and what the processes wrote."""
        done = {int(name.split(".")[0]) for name in self.names("done")}
        print("acknowledged and not done:", sorted(self.acknowledged - done), file=sys.stderr)
        for log in sorted(self.folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)


def free_port() -> int:
    """A free port below those that the system gives to clients: one of them could take it while the server is down."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def answers(port: int) -> bool:
    try:
        return client(port).ping()
    except redis.RedisError:
        return False


def end_children() -> None:
    """Kills every process that this one started, and those that these have left."""
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text().split():
        for pid in map(int, pids):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main(make_queue) -> None:
    """Runs the drill with the queue that `make_queue` makes for a port; the arguments are the server's command."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    # Jobs whose worker was killed become children of this process.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory() as folder:
        drill = None
        try:
            drill = Drill(pathlib.Path(folder), sys.argv[1:])
            drill.run(make_queue(drill.port))
        except BaseException:
            if drill:
                drill.explain()
            raise
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # nothing stops the end
            end_children()
