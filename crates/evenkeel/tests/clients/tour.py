"""What a new user of redis-py tries first: python tour.py PORT PROTOCOL."""

import sys
import threading

import redis

port, protocol = int(sys.argv[1]), int(sys.argv[2])
r = redis.Redis(port=port, protocol=protocol, decode_responses=True)
r.flushall()

assert r.ping() is True
assert r.set("name", "Ada") is True
assert r.get("name") == "Ada"
assert r.get("none") is None
assert r.set("name", "Bob", nx=True) is None
assert r.set("name", "Bob", get=True) == "Ada"
assert r.set("session", "x", ex=100) is True
assert 98 <= r.ttl("session") <= 100
assert r.persist("session") is True
assert r.ttl("session") == -1 and r.ttl("none") == -2
assert r.expire("session", 50, nx=True) is True
assert r.mset({"a": 1, "b": 2}) is True
assert r.mget("a", "b", "c") == ["1", "2", None]
assert r.incr("hits") == 1 and r.incrby("hits", 9) == 10 and r.decr("hits") == 9
assert r.incrbyfloat("temperature", 1.5) == 1.5
assert r.append("name", "by") == 5 and r.strlen("name") == 5
assert r.getrange("name", 0, 2) == "Bob" and r.setrange("name", 0, "R") == 5
assert r.getdel("name") == "Robby" and r.exists("name") == 0
assert r.type("a") == "string"
assert sorted(r.scan_iter("*", count=2)) == sorted(r.keys("*"))
assert r.rename("a", "z") is True and r.copy("z", "y") in (True, 1)
assert r.delete("z", "y", "none") == 2
assert r.dbsize() == len(r.keys("*"))

with r.pipeline(transaction=True) as pipe:
    assert pipe.set("p", 1).incr("p").get("p").execute() == [True, 2, "2"]
with r.pipeline(transaction=False) as pipe:
    for number in range(100):
        pipe.set(f"bulk:{number}", number)
    assert pipe.execute() == [True] * 100

# Optimistic locking: a change under WATCH aborts.
with r.pipeline() as pipe:
    pipe.watch("p")
    r.set("p", "changed")
    pipe.multi()
    pipe.set("p", "mine")
    try:
        pipe.execute()
        raise AssertionError("the change was not seen")
    except redis.WatchError:
        pass
assert r.get("p") == "changed"

# Bytes pass unchanged.
raw = redis.Redis(port=port, protocol=protocol)
value = bytes(range(256)) * 1000
assert raw.set(b"\x00\xff\r\n", value) and raw.get(b"\x00\xff\r\n") == value

# Another database is another world.
other = redis.Redis(port=port, protocol=protocol, db=1)
assert other.dbsize() == 0 and other.set("x", 1) and r.get("x") is None
assert other.flushdb() is True

# Messages.
listener = r.pubsub(ignore_subscribe_messages=True)
listener.subscribe("news")
listener.psubscribe("n?ws")
listener.get_message(timeout=5), listener.get_message(timeout=5)
assert r.publish("news", "hello") == 2
kinds = {listener.get_message(timeout=5)["type"] for _ in range(2)}
assert kinds == {"message", "pmessage"}, kinds
listener.close()

# Errors are errors, and the connection goes on.
try:
    r.incr("session")
    raise AssertionError("not an integer")
except redis.ResponseError as error:
    assert str(error) == "value is not an integer or out of range", error
assert r.ping()

# A transaction in one pipeline; one of its commands fails in the second.
for key, outcome in (("hits", "committed"), ("session", "aborted")):
    with r.pipeline(transaction=False) as pipe:
        for command in (["BEGIN"], ["DO", "$", "SET", "paid", 1], ["DO", "$", "INCR", key], ["COMMIT", "$"]):
            pipe.execute_command("TX." + command[0], *command[1:])
        replies = pipe.execute(raise_on_error=False)
    assert replies[-1][0] == outcome, replies
    assert r.delete("paid") == (outcome == "committed")

# Step by step: an error dooms its transaction, whoever meets it, and whatever is done after it.
for wrong in (["DO", "ID", "INCR", "session"], ["SQL", "ID", "nowhere", "SELECT 1"], ["DO", "ID"], ["DOO", "ID", "x"]):
    begun = r.execute_command("TX.BEGIN")
    ident = begun["id"] if isinstance(begun, dict) else begun[1]

    def tx(words: list) -> object:
        return r.execute_command("TX." + words[0], *(ident if word == "ID" else word for word in words[1:]))

    assert tx(["DO", "ID", "SET", "paid", 1]) in ("OK", True)
    try:
        tx(wrong)
        raise AssertionError(f"{wrong} is answered with an error")
    except redis.ResponseError as error:
        why = str(error)
    try:
        tx(["DO", "ID", "SET", "paid", 2])
        raise AssertionError("nothing can be added any more")
    except redis.ResponseError as error:
        assert "has ended" in str(error) or "being ended" in str(error), error
    outcome, reason = tx(["COMMIT", "ID"])
    assert outcome == "aborted" and why.strip() in reason, (outcome, reason, why)
    assert r.exists("paid") == 0

# What tools ask.
info = r.info()
assert info["redis_version"] and info["connected_clients"] >= 1, info
assert r.config_get("maxclients")["maxclients"]
assert r.client_setname("tester") and r.client_getname() == "tester"
assert any(client["name"] == "tester" for client in r.client_list())
assert r.command_count() > 50
assert r.time()[0] > 1_700_000_000
assert r.lastsave() is not None and r.memory_usage("session") > 0
assert r.object("encoding", "session")
dump = raw.dump("session")
assert raw.restore("copy", 0, dump) in (True, b"OK") and r.get("copy") == "x"


# Many threads share a pool.
def count() -> None:
    for _ in range(200):
        r.incr("shared")


threads = [threading.Thread(target=count) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert r.get("shared") == "1600"

assert r.flushall() is True and r.dbsize() == 0
print("ok")
