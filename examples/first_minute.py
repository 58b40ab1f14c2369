"""The first minute with redis-py: pip install redis && python first_minute.py [PORT]"""

import sys

import redis

port = int(sys.argv[1]) if len(sys.argv) > 1 else 6379
r = redis.Redis(port=port, protocol=3, decode_responses=True)

# Returns when it is on disk.
r.set("name", "Ada", ex=3600)
print("name:", r.get("name"), "for", r.ttl("name"), "s")
print("visits:", r.incr("visits"))

# Several writes in one round trip, sharing one sync of the disk.
with r.pipeline(transaction=False) as pipe:
    for number in range(1000):
        pipe.set(f"item:{number}", number)
    pipe.execute()

# All or nothing, after a crash as well.
with r.pipeline(transaction=True) as pipe:
    print("transfer:", pipe.decrby("account:1", 10).incrby("account:2", 10).execute())

# Optimistic locking: tried again when somebody else was faster.
def double(pipe):
    value = int(pipe.get("visits"))
    pipe.multi()
    pipe.set("visits", value * 2)

r.transaction(double, "visits")
print("visits doubled:", r.get("visits"))
