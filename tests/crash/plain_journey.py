"""A program without asyncio that real faults are done to: journeys whose bodies are `def` functions, under `engine.blocking`.

Run as `python plain_journey.py ROLE URL [--kill POINT]`. Its steps are those of `journey.py`.
"""

import argparse
import os

import journey

from outlast import BlockingContext, connect, task


@task
def plain_journey(ctx: BlockingContext, number: int) -> str:
    base = ctx.step(journey.prepare, number)
    one, two = ctx.step(journey.left, base), ctx.step(journey.right, base)
    three = ctx.step(journey.flaky, base)
    ctx.sleep(2)  # parks
    four = ctx.step(journey.slow, base)
    return ctx.step(journey.publish, number, one + two + three + four)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("execute", "enqueue"))
    parser.add_argument("url")
    parser.add_argument("--kill", default="")
    options = parser.parse_args()
    engine = connect(options.url, tasks=[plain_journey], lease="2s")
    engine.events.subscribe(journey.heard)
    if options.kill:
        engine.events.subscribe(journey.killer(options.kill))
    with engine.blocking as blocking:
        if options.role == "enqueue":
            run = blocking.enqueue(plain_journey, 0)
            os.write(1, f"enqueued {run.id}\n".encode())
        else:
            left = blocking.run(concurrency=5, stop_timeout=10)
            os.write(1, f"left {left}\n".encode())


if __name__ == "__main__":
    main()
