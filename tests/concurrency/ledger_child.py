"""A process without an engine that begins an effect and is killed in the middle: `ledger_child.py URL FILE`."""

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

from outlast import Attempt, connect_ledger, effect


@effect(name="pay", timeout="60s")
def pay(attempt: Attempt[Any], amount: int) -> int:
    """Do it, and never come back."""
    with Path(sys.argv[2]).open("a", encoding="utf-8") as file:
        file.write(f"{attempt.key} {attempt.number} {attempt.token}\n")
    sys.stdout.write("done\n")
    sys.stdout.flush()
    threading.Event().wait(600)
    return amount


async def main() -> None:
    async with connect_ledger(sys.argv[1], lease="1s") as ledger:
        await ledger.run(pay, 5, key="key")


if __name__ == "__main__":
    asyncio.run(main())
