"""Exactly once beside at least once: entries a second of a topology, and the time from an entry to what came of it.

    python bench/exactly_once.py PATH/TO/evenkeel [--entries N] [--runs N] [--rate N] [--seconds N]

Starts a server in a folder of its own, and ends it. Needs redis-py. Runs of both guarantees go by turns.
"""

import argparse
import contextlib
import multiprocessing
import os
import socket
import statistics
import subprocess
import tempfile
import time

import redis

QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
GUARANTEES = ["at-least-once", "exactly-once"]
DEFINITION = """
name: {name}
config: {{evenkeel.guarantee: {guarantee}, topology.max.spout.pending: {pending}}}
spouts:
- id: orders
  className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout
  constructorArgs: [[evenkeel, component, stream-spout, orders], [word, time]]
bolts:
- id: count
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, count, --by, word, --prefix, "{name}:"], [word, count]]
  parallelism: 2
- id: out
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, stream-sink, "{name}:out"], [nothing]]
streams:
- {{from: orders, to: count, grouping: {{type: FIELDS, args: [word]}}}}
- {{from: {end}, to: out, grouping: {{type: SHUFFLE}}}}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def server(binary, folder):
    port = free_port()
    command = [binary, "--port", str(port), "--dir", folder + "/data"]
    process = subprocess.Popen(command, **QUIET)
    client = redis.Redis(port=port)
    while True:
        try:
            client.ping()
            break
        except redis.ConnectionError:
            assert process.poll() is None, "the server does not start"
            time.sleep(0.05)
    try:
        yield port, client
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def topology(binary, folder, port, **what):
    with open(folder + "/topology.yaml", "w") as file:
        file.write(DEFINITION.format(**what))
    environment = dict(os.environ, EVENKEEL_URL=f"redis://127.0.0.1:{port}")
    command = [binary, "topology", "run", "topology.yaml", "--local"]
    process = subprocess.Popen(command, cwd=folder, env=environment, **QUIET)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def fill(client, first, last):
    pipe = client.pipeline(transaction=False)
    for number in range(first, last):
        pipe.xadd("orders", {"word": f"w{number % 1000}", "time": repr(time.time())})
    pipe.execute()


def throughput(options, pending):
    rates, epochs = {guarantee: [] for guarantee in GUARANTEES}, 0
    with tempfile.TemporaryDirectory(dir=".") as folder, server(options.binary, folder) as (port, client):
        folder = os.path.abspath(folder)
        for first in range(0, options.entries, 10_000):
            fill(client, first, min(first + 10_000, options.entries))
        for run in range(options.runs):
            for guarantee in GUARANTEES:
                name = f"{guarantee}-{run}"
                what = {"name": name, "guarantee": guarantee, "pending": pending, "end": "count"}
                with topology(options.binary, folder, port, **what):
                    while not (begun := client.xlen(name + ":out")):
                        time.sleep(0.01)
                    start = time.time()
                    while (seen := client.xlen(name + ":out")) < options.entries:
                        time.sleep(0.01)
                    rates[guarantee].append((seen - begun) / (time.time() - start))
                counted = sum(map(int, client.hvals(name + ":count")))
                assert counted == seen == options.entries, f"{name}: {counted} counted, {seen} emitted"
                epochs = int(client.hget(f"topology:{name}:epochs", "epoch") or 0)
                client.delete(name + ":out")
    least, exactly = (statistics.median(rates[guarantee]) for guarantee in GUARANTEES)
    print(f"pending {pending}: {least:.0f}/s at least once, {exactly:.0f}/s exactly once, ratio {exactly / least:.2f}, "
          f"{options.entries / epochs:.0f} entries an epoch")


def feed(port, rate, count):
    client, start, sent = redis.Redis(port=port), time.time(), 0
    while sent < count:
        due = min(int((time.time() - start) * rate), count)
        if due > sent:
            fill(client, sent, due)
            sent = due
        else:
            time.sleep(0.0005)


def latency(options, guarantee):
    count, times, last = options.rate * options.seconds, [], "0"
    with tempfile.TemporaryDirectory(dir=".") as folder, server(options.binary, folder) as (port, client):
        folder = os.path.abspath(folder)
        what = {"name": "latency", "guarantee": guarantee, "pending": 1000, "end": "orders"}
        with topology(options.binary, folder, port, **what):
            time.sleep(1)
            feeder = multiprocessing.Process(target=feed, args=(port, options.rate, count))
            feeder.start()
            while len(times) < count:
                entries = client.xread({"latency:out": last}, count=5000, block=20_000)
                assert entries, f"nothing came after {len(times)} entries"
                now = time.time()
                times.extend(now - float(fields[b"time"]) for _, fields in entries[0][1])
                last = entries[0][1][-1][0]
            feeder.join()
    times = sorted(times[options.rate:])  # without the first second
    shares = [0.5, 0.99, 0.999, 0.9999]
    shown = ", ".join(f"p{share * 100:g} {times[int(len(times) * share)] * 1000:.1f}" for share in shares)
    print(f"{guarantee}, {options.rate}/s: {shown} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=os.path.abspath)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=int, default=15)
    options = parser.parse_args()
    throughput(options, 1_000)
    throughput(options, 10_000)
    for _ in range(2):
        for guarantee in GUARANTEES:
            latency(options, guarantee)


if __name__ == "__main__":
    main()
