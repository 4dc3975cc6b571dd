// The task on graphile-worker. Its queue is in the PostgreSQL that the PG… variables name.
//
//   node graphile.mjs prepare | enqueue COUNT PER_SECOND PREFIX FILE | work

import { createHmac } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { Pool } from "undici";

const LIST = 64;
const BODY = '{"order": "A-1001", "note": "' + "x".repeat(993) + '"}';
const quiet = new Logger(() => () => {});
const preset = {
  worker: {
    concurrentJobs: 64,
    maxPoolSize: 10,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

// Milliseconds of the clock that all processes of a machine share, as Python's time.monotonic().
const monotonic = () => Number(process.hrtime.bigint()) / 1e9;

// A pool without handlers of errors is complained about.
function newPool() {
  const pool = new pg.Pool({ max: 10 });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  return pool;
}

async function enqueue(count, perSecond, prefix, file) {
  const pool = newPool();
  const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
  const times = {};
  const began = monotonic();
  const step = perSecond ? 1 : LIST;
  for (let start = 0; start < count; start += step) {
    if (perSecond) {
      const early = began + start / perSecond - monotonic();
      await new Promise((done) => setTimeout(done, Math.max(0, early * 1000)));
    }
    const jobs = [];
    for (let number = start; number < Math.min(start + step, count); number += 1) {
      times[`${prefix}${number}`] = monotonic();
      const payload = { id: `${prefix}${number}`, body: BODY };
      jobs.push({ identifier: "deliver", payload, maxAttempts: 5 });
    }
    await utils.addJobs(jobs);
  }
  await utils.release();
  await pool.end();
  const { user, system } = process.cpuUsage();
  writeFileSync(file, JSON.stringify({ times, cpu_us: user + system }));
}

async function work() {
  const url = new URL(process.env.PEER_URL);
  const ca = readFileSync(process.env.PEER_CA);
  const client = new Pool(url.origin, { connections: 64, connect: { ca } });

  async function deliver({ id, body }) {
    const now = Math.floor(Date.now() / 1000);
    const hmac = createHmac("sha256", process.env.PEER_SECRET);
    const signature = hmac.update(`${id}.${now}.${body}`).digest("base64");
    const answer = await client.request({
      method: "POST",
      path: url.pathname,
      headers: {
        "content-type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": String(now),
        "webhook-signature": `v1,${signature}`,
      },
      body,
    });
    await answer.body.dump();
    if (answer.statusCode < 200 || answer.statusCode > 299) {
      throw new Error(`status ${answer.statusCode}`);
    }
  }

  const runner = await run({ preset, pgPool: newPool(), logger: quiet, taskList: { deliver } });
  await runner.promise;
}

async function prepare() {
  const utils = await makeWorkerUtils({ logger: quiet, pgPool: newPool() });
  await utils.migrate();
  process.exit(0);
}

const [mode, count, perSecond, prefix, file] = process.argv.slice(2);
if (mode === "prepare") await prepare();
else if (mode === "work") await work();
else await enqueue(Number(count), Number(perSecond), prefix, file);
