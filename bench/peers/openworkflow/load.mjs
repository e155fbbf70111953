/**
 * One process of the OpenWorkflow side: `node load.mjs ACTION JSON`. It prints one JSON object a line and measures only
 * what its action names; databases, rounds and comparison are the harness's business.
 */
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { BackendPostgres } from "openworkflow/postgres";
import postgres from "postgres";
import { defineWorkflows, report } from "./workflows.mjs";

const POLL_MS = 2;

/** Open a pool of the wanted size. The column names are turned as the backend's own pool turns them. */
function openPool(options) {
  return postgres(options.url, {
    max: options.connections,
    onnotice: () => {},
    transform: { column: { from: postgres.toCamel } },
  });
}

async function withBackend(options, onEnd, act) {
  const pool = openPool(options);
  const defined = defineWorkflows(BackendPostgres.fromPool(pool), onEnd);
  try {
    return await act(defined, pool);
  } finally {
    await pool.end();
  }
}

/** Start `count` runs, `at_once` of them at a time, and return the seconds it took. */
async function enqueue(workflow, count, atOnce) {
  const begun = performance.now();
  for (let first = 0; first < count; first += atOnce) {
    const numbers = Array.from({ length: Math.min(atOnce, count - first) }, (_, index) => first + index);
    await Promise.all(numbers.map((number) => workflow.run({ number })));
  }
  return (performance.now() - begun) / 1000;
}

async function untilAllCompleted(pool) {
  for (;;) {
    const [row] = await pool`
      SELECT EXISTS (SELECT FROM openworkflow.workflow_runs WHERE status IN ('pending', 'running', 'sleeping')) AS open`;
    if (!row.open) return;
    await sleep(POLL_MS);
  }
}

const actions = {
  async prepare(options) {
    const backend = await BackendPostgres.connect(options.url);
    await backend.stop();
    return { event: "prepared" };
  },

  async enqueue(options) {
    return withBackend(options, undefined, async ({ workflows }) => {
      const warmUp = options.warm_up ?? 0;
      await enqueue(workflows[options.task], warmUp, warmUp);
      return { event: "enqueued", seconds: await enqueue(workflows[options.task], options.count, options.at_once) };
    });
  },

  async drain(options) {
    let ended = 0;
    let allEnded;
    const everyBody = new Promise((resolve) => (allEnded = resolve));
    const onEnd = () => (ended += 1) === options.count && allEnded();
    return withBackend(options, onEnd, async ({ client }, pool) => {
      await pool`SELECT 1`;
      const worker = client.newWorker({ concurrency: options.concurrency });
      const begun = performance.now();
      const begunCpu = process.cpuUsage();
      await worker.start();
      await everyBody;
      await untilAllCompleted(pool);
      const seconds = (performance.now() - begun) / 1000;
      const cpu = process.cpuUsage(begunCpu);
      await worker.stop();
      return { event: "drained", seconds, cpu_seconds: (cpu.user + cpu.system) / 1e6, memory_kib: process.resourceUsage().maxRSS };
    });
  },

  async work(options) {
    return withBackend(options, undefined, async ({ client }) => {
      const worker = client.newWorker({ concurrency: options.concurrency });
      await worker.start();
      report({ event: "ready" });
      process.stdin.resume();
      await once(process.stdin, "end");
      await worker.stop();
      return { event: "stopped" };
    });
  },

  async ask(options) {
    return withBackend(options, undefined, async ({ workflows }, pool) => {
      await pool`SELECT 1`;
      for (let number = 0; number < options.count; number += 1) {
        await sleep(options.pause_seconds * 1000);
        report({ event: "asked", number });
        await workflows[options.task].run({ number, hold_seconds: options.hold_seconds ?? 0 });
      }
      return { event: "asked_all" };
    });
  },
};

report(await actions[process.argv[2]](JSON.parse(process.argv[3])));
