"""Exactly once in several workers: how long the sink's stream stands still, and whether each entry counts once.

    python bench/exactly_once_workers.py PATH/TO/evenkeel [--rate N] [--rebalance 3,2,4,1,3] [--kill-s N]

Starts a server in a folder of its own, and ends it. Needs redis-py. First nothing happens for 5 s, then the topology is rebalanced to each number
of workers by turns, then one worker is killed each 5 s (--kill-s seconds in all; each third time the one with the coordinator), and the server
three times. Ends with an error if an entry was lost or counted twice.
"""

import argparse
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time

import redis

from exactly_once import QUIET, free_port

CLASS = "org.apache.storm.flux.wrappers"
DEFINITION = f"""
name: words
config: {{evenkeel.guarantee: exactly-once, topology.workers: 3}}
spouts:
- id: entries
  className: {CLASS}.spouts.FluxShellSpout
  constructorArgs: [[evenkeel, component, stream-spout, entries], [id, word]]
  parallelism: 2
bolts:
- id: count
  className: {CLASS}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, count, --by, word, --prefix, "words:"], [word, count]]
  parallelism: 3
- id: keys
  className: {CLASS}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, key-sink, HINCRBY, seen, "{{word}}", "1"], [nothing]]
  parallelism: 2
- id: out
  className: {CLASS}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, stream-sink, out], [nothing]]
  parallelism: 3
streams:
- {{from: entries, to: count, grouping: {{type: FIELDS, args: [word]}}}}
- {{from: entries, to: keys, grouping: {{type: SHUFFLE}}}}
- {{from: entries, to: out, grouping: {{type: SHUFFLE}}}}
"""


def pairs(reply):
    return dict(zip(reply[::2], reply[1::2]))


class Server:
    """A server in `folder`, whose clients wait while it is killed and started again."""

    def __init__(self, binary, folder):
        self.binary, self.folder, self.port = binary, folder, free_port()
        self.start()

    def start(self):
        command = [self.binary, "--port", str(self.port), "--dir", self.folder, "--topologies-dir", "/"]
        self.process = subprocess.Popen(command, **QUIET)
        self.call("PING")

    def call(self, *words):
        until = time.monotonic() + 30
        while True:
            try:
                client = redis.Redis(port=self.port, socket_timeout=10, protocol=2)
                return client.execute_command(*words)
            except (redis.ConnectionError, redis.TimeoutError):
                assert time.monotonic() < until, f"the server does not answer {words[0]}"
                time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def workers(self):
        shown = pairs(self.call("TOPOLOGY", "SHOW", "words"))
        workers = [pairs(it) for it in shown[b"workers"]]
        return {worker[b"worker"]: worker[b"pid"] for worker in workers if worker[b"pid"]}


def feed(port, rate, is_ended, sent):
    """Appends entries until `is_ended`; `sent` has how many were acknowledged."""
    start, waits = time.monotonic(), 0.0
    while not is_ended.value:
        due = int((time.monotonic() - start - waits) * rate) - sent.value
        if due <= 0:
            time.sleep(0.002)
            continue
        begin = time.monotonic()
        # one transaction with its own mark: whether it was taken is known even if the reply is lost
        mark = f"{sent.value}+{due}"
        while True:
            try:
                client = redis.Redis(port=port, socket_timeout=10)
                if client.get("mark") != mark.encode():
                    pipe = client.pipeline(transaction=True)
                    for number in range(sent.value, sent.value + due):
                        pipe.xadd("entries", {"word": f"w{number % 1000}"})
                    pipe.set("mark", mark)
                    pipe.execute()
                break
            except (redis.ConnectionError, redis.TimeoutError):
                time.sleep(0.02)
        sent.value += due
        # after a crash it goes on at its rate, without what was missed
        waits += max(0.0, time.monotonic() - begin - 0.1)


def longest_gap(server, seconds):
    """The longest time (ms) without another entry at the sink."""
    client = redis.Redis(port=server.port)
    end = time.monotonic() + seconds
    last, since, longest = client.xlen("out"), time.monotonic(), 0.0
    while (now := time.monotonic()) < end:
        length = client.xlen("out")
        if length != last:
            last, since = length, now
        longest = max(longest, now - since)
        time.sleep(0.001)
    return longest * 1000


def kills(server, seconds):
    """Kills one worker each 5 s and the server three times; how often each."""
    count, start, server_kills = 0, time.monotonic(), 0
    while time.monotonic() - start < seconds:
        time.sleep(5)
        if server_kills < 3 and time.monotonic() - start > (server_kills + 1) * seconds / 4:
            server.kill()
            server_kills += 1
            continue
        workers = server.workers()
        if workers:
            number = sorted(workers)[count % len(workers)]
            os.kill(workers[number], signal.SIGKILL)
            count += 1
    return count, server_kills


def settle(server, sent):
    """Waits until all entries are counted; whether each was once."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        seen = server.call("XLEN", "out")
        counts = [sum(int(it) for it in server.call("HVALS", key)) for key in ("words:count", "seen")]
        if seen >= sent and min(counts) >= sent:
            break
        time.sleep(0.2)
    print(f"{sent} entries: {seen} at the sink's stream, {counts[0]} and {counts[1]} counted")
    return seen == sent and counts == [sent, sent]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=os.path.abspath)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--rebalance", default="3,2,4,1,3")
    parser.add_argument("--kill-s", type=int, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        server = Server(options.binary, os.path.abspath(folder))
        is_ended, sent = multiprocessing.Value("b", 0), multiprocessing.Value("q", 0)
        feeder = multiprocessing.Process(target=feed, args=(server.port, options.rate, is_ended, sent))
        try:
            server.call("TOPOLOGY", "SUBMIT", "words", DEFINITION)
            feeder.start()
            while not server.call("XLEN", "out"):
                time.sleep(0.05)
            time.sleep(2)
            print(f"longest gap without a change: {longest_gap(server, 5):.0f} ms")
            for workers in options.rebalance.split(","):
                server.call("TOPOLOGY", "REBALANCE", "words", "WORKERS", workers)
                gap = longest_gap(server, 3)
                assert len(server.workers()) == int(workers), f"{len(server.workers())} workers run"
                print(f"longest gap, rebalanced to {workers} workers: {gap:.0f} ms", flush=True)
            killed = kills(server, options.kill_s)
            print(f"{killed[0]} workers and {killed[1]} servers were killed")
            is_ended.value = 1
            feeder.join()
            is_whole = settle(server, sent.value)
        finally:
            is_ended.value = 1
            if feeder.is_alive():
                feeder.terminate()
            server.process.terminate()
            server.process.wait()
    if not is_whole:
        sys.exit("entries were lost, or counted twice")


if __name__ == "__main__":
    main()
