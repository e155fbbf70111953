"""`outlast signal`: send a signal to the runs that wait for it."""

import sys
from typing import Any

import click

from outlast.limits import WAITING_COUNTED_MAX
from outlast.signal import SignalReceipt, topic_of_run

from .application import DONE, Application, Reach, app_option, database_option, duration_option, execute, json_option, parsed_json
from .output import print_json, print_line


@click.command()
@click.argument("topic")
@database_option
@app_option
@json_option
@click.option("--payload", metavar="JSON", help='What it says; "-" reads it from standard input.  [default: null]')
@click.option("--key", metavar="TEXT", help="Idempotency key: the same key on a topic, the same signal.")
@click.option("--ttl", metavar="DURATION", help="How long it is kept for runs that have not seen it.  [default: 7d]")
@click.option("--run", "run_id", metavar="RUN", help="Send it to this run alone, on its own topic of that name.")
def signal(topic: str, database: str | None, app: str | None, is_json: bool, payload: str | None, key: str | None, ttl: str | None, run_id: str | None) -> None:
    """Send a signal to every run that waits for TOPIC, now or as long as it is kept."""

    async def act(engine: Application) -> int:
        text = sys.stdin.read() if payload == "-" else payload
        value = None if text is None else parsed_json(text, "--payload")
        options: dict[str, Any] = {} if ttl is None else {"ttl": duration_option(ttl, "--ttl")}
        receipt = await engine.signal(await _topic(engine, topic, run_id), value, idempotency_key=key, **options)
        print_json(receipt) if is_json else print_line(f"{receipt.id}  ({_told(receipt)})")
        return DONE

    execute(Reach(database, app), act)


async def _topic(engine: Application, topic: str, run_id: str | None) -> str:
    """Return the topic; on one of a run that is not there nobody would ever see a signal."""
    if run_id is None:
        return topic
    return topic_of_run((await engine.get(run_id)).id, topic)


def _told(receipt: SignalReceipt) -> str:
    if not receipt.created:
        return "the key was there: this is its signal"
    if not receipt.waiting:
        return "no run waits for it just now; it is kept for those that will"
    number = f"at least {WAITING_COUNTED_MAX:,}" if receipt.waiting >= WAITING_COUNTED_MAX else f"{receipt.waiting:,}"
    return f"{number} {'run' if receipt.waiting == 1 else 'runs'} waited for it"
