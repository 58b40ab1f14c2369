// BullMQ's part of the drill: `node bullmq.js enqueue` enqueues the number on each line that it reads and answers with `ok` or an
// error, `node bullmq.js work` is a worker. The job is that of work.py.
const { existsSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");
const readline = require("node:readline");
const { setTimeout: pause } = require("node:timers/promises");
const { Queue, Worker } = require("bullmq");

const folder = process.env.DRILL_FOLDER;
const address = { host: "127.0.0.1", port: Number(process.env.DRILL_PORT) };
// A worker's lock on its job ends after it, and another worker takes the job.
const LOCK_MS = 2000;
// A job of a killed worker stalls once, and again if its lock ends while the server is down.
const STALLED_MAX = 10;

async function work(job) {
  const run = `${job.data}.${process.pid}.${process.pid}`; // the worker is the process of its jobs
  writeFileSync(join(folder, "started", run), "");
  const isReleased = () => [run, "all"].some((name) => existsSync(join(folder, "released", name)));
  while (!isReleased()) await pause(5);
  writeFileSync(join(folder, "done", run), "");
}

async function enqueue() {
  // Each lost connection is reported: what a retry repeats is not counted twice.
  const connection = { ...address, maxRetriesPerRequest: 0, enableOfflineQueue: false };
  const queue = new Queue("drill", { connection });
  queue.on("error", () => {});
  await queue.waitUntilReady();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const answer = await queue.add("job", Number(line)).then(() => "ok", String);
    console.log(answer.replaceAll("\n", " "));
  }
}

if (process.argv[2] === "enqueue") {
  enqueue();
} else {
  const options = { connection: address, lockDuration: LOCK_MS, stalledInterval: LOCK_MS / 2, maxStalledCount: STALLED_MAX };
  new Worker("drill", work, options).on("error", console.error);
}
