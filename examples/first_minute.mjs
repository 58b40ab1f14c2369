// The first minute with node-redis: npm install redis
import { createClient } from "redis";

const client = await createClient({ url: "redis://127.0.0.1:6379", RESP: 3 }).connect();

// Returns when it is on disk.
await client.set("name", "Ada", { EX: 3600 });
console.log(await client.get("name"), await client.incr("visits"));

// All or nothing, after a crash as well.
console.log("transfer:", await client.multi().decrBy("account:1", 10).incrBy("account:2", 10).exec());

await client.close();
