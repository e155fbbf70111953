/**
 * The workflows of the OpenWorkflow side. Each does as little as its counterpart in outlast_load.py, so that what is
 * timed is the engine; it must never skip a durable step that the other side takes.
 */
import { OpenWorkflow } from "openworkflow";

const STEPS_IN_SEQUENCE = 10;

/** Print one event for the harness. The clock is the machine's monotonic one, which Python reads too. */
export function report(event) {
  process.stdout.write(`${JSON.stringify({ ...event, at_ns: Number(process.hrtime.bigint()) })}\n`);
}

/** Define every workflow on one client. `onEnd` is called when a body has ended, before its run is completed. */
export function defineWorkflows(backend, onEnd = () => {}) {
  const client = new OpenWorkflow({ backend });
  const one_step = client.defineWorkflow({ name: "one_step" }, async ({ input, step }) => {
    const number = await step.run({ name: "increment" }, async () => input.number + 1);
    onEnd();
    return { number };
  });
  const ten_steps = client.defineWorkflow({ name: "ten_steps" }, async ({ input, step }) => {
    let number = input.number;
    for (let index = 0; index < STEPS_IN_SEQUENCE; index += 1) {
      number = await step.run({ name: `increment-${index}` }, async () => number + 1);
    }
    onEnd();
    return { number };
  });
  const reporting = client.defineWorkflow({ name: "reporting" }, async ({ input }) => {
    report({ event: "body", number: input.number });
    return { number: input.number };
  });
  const holding = client.defineWorkflow({ name: "holding" }, async ({ input, step }) => {
    report({ event: "body", number: input.number });
    await step.run({ name: "hold" }, () => new Promise((resolve) => setTimeout(resolve, input.hold_seconds * 1000)));
    return { number: input.number };
  });
  return { client, workflows: { one_step, ten_steps, reporting, holding } };
}
