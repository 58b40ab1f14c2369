"""redis-py over TLS: commands, pipelines, MULTI, publish/subscribe, blocking commands, many connections."""

import sys
import threading

import redis

port, ca = int(sys.argv[1]), sys.argv[2]


def connect():
    return redis.Redis(host="127.0.0.1", port=port, ssl=True, ssl_ca_certs=ca)


client = connect()
pipeline = client.pipeline(transaction=False)
for number in range(5000):
    pipeline.set(f"k{number}", number)
assert all(pipeline.execute())
pipeline = client.pipeline(transaction=False)
for number in range(5000):
    pipeline.get(f"k{number}")
assert [int(value) for value in pipeline.execute()] == list(range(5000))
with client.pipeline() as transaction:
    transaction.incr("n")
    transaction.incr("n")
    assert transaction.execute() == [1, 2]
listener = client.pubsub()
listener.subscribe("channel")
assert listener.get_message(timeout=5)["type"] == "subscribe"
client.publish("channel", "message")
assert listener.get_message(timeout=5)["data"] == b"message"
assert client.blpop("nothing", 1) is None

failures = []


def count(name):
    try:
        own = connect()
        assert [own.incr(name) for _ in range(200)] == list(range(1, 201))
    except Exception as error:
        failures.append(error)


threads = [threading.Thread(target=count, args=(f"counter{number}",)) for number in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
print("fine")
