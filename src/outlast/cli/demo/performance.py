"""Performance: one demo from its first file to its proof."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from outlast.cli.application import DONE, FAILED
from outlast.cli.output import bytes_text
from outlast.clock import SystemClock
from outlast.errors import UnavailableError
from outlast.ids import process_nonce

from .conclusion import Conclusion
from .crew import STOP_SECONDS, Crew
from .plot import Plot
from .proof import prove
from .screen import JsonScreen, LineScreen, LiveScreen, Screen
from .source import Listing, generate, list_folder
from .tasks import LEASE, Order, make_engine, store_file
from .watch import Watch
from .world import World

AT_ONCE = 4
"""Files that one worker copies at once."""
LARGEST_SECONDS, WHOLE_SECONDS = 7.0, 12.0
"""How long the largest file and all files together take at the pace that is set."""
REFRESH_SECONDS = 0.12
STALL_SECONDS_MAX = 60.0
"""If nothing moves for so long, the demo ends and says so."""


class Performance:
    """The parts of one demo, and what holds them together."""

    def __init__(self, engine: Any, listing: Listing, world: World, crew: Crew, screen: Screen, queue: str) -> None:
        self._engine = engine
        self._listing = listing
        self._world = world
        self._crew = crew
        self._screen = screen
        self._queue = queue
        self.watch = Watch(engine.inspector, world.journal, queue)
        self.plot = Plot(world, crew, self.watch, screen.say)

    async def play(self, workers: int) -> None:
        """Enqueue every file, work, interrupt the work, and return when all runs are over and all workers are gone."""
        orders = [Order(self._listing.folder / file.name, file.name) for file in self._listing.files]
        runs = await self._engine.enqueue_many(store_file, orders, queue=self._queue)
        for file, run in zip(self._listing.files, runs, strict=True):
            self.watch.expect(file, run.id)
        self._screen.say(f"{len(self.watch.files)} runs enqueued, one a file; {workers} workers start, with a lease of {LEASE}")
        for _ in range(workers):
            self._crew.start()
        plot = asyncio.create_task(self.plot.carry_out())
        try:
            await self._follow(plot)
        finally:
            plot.cancel()
            await asyncio.wait([plot])
        await self._stop()

    async def _follow(self, plot: asyncio.Task[None]) -> None:
        clock, moved, last = SystemClock(), SystemClock().monotonic(), -1.0
        while not (self.watch.is_over and plot.done()):
            self._crew.read()
            try:
                await self.watch.read()
            except UnavailableError as error:  # a database that is busy for a while does not end the demo; one that is gone stalls it
                self._screen.say(f"the database did not answer: {error}")
            self._screen.show(self.watch, self._crew)
            if plot.done():
                plot.result()
            measure = self.watch.bytes_done + self.watch.arrived
            if measure != last:
                moved, last = clock.monotonic(), measure
            elif clock.monotonic() - moved > STALL_SECONDS_MAX:
                self._screen.say(f"nothing has moved for {STALL_SECONDS_MAX:.0f} s")
                return
            await asyncio.sleep(REFRESH_SECONDS)

    async def _stop(self) -> None:
        self._screen.say("stopping the workers")
        self._crew.ask_to_stop()
        end = SystemClock().monotonic() + STOP_SECONDS + 1
        while not self._crew.all_ended() and SystemClock().monotonic() < end:
            self._crew.read()
            await asyncio.sleep(REFRESH_SECONDS)


async def perform(folder: Path, listing: Listing | None, url: str, *, workers: int, is_json: bool) -> int:
    """Play the demo in a folder of its own and print the proof; return the exit code."""
    is_generated = listing is None
    if listing is None:
        (folder / "source").mkdir()
        generate(folder / "source")
        listing = list_folder(folder / "source")
    world = World(folder, pace_for(listing, workers))
    for inner in (world.library, world.register):
        inner.mkdir()
    queue = f"demo-{process_nonce()}"
    screen: Screen = JsonScreen() if is_json else LiveScreen() if sys.stdout.isatty() else LineScreen()
    async with make_engine(url, world) as engine:
        with screen, Crew(url, world, queue=queue, concurrency=AT_ONCE, say=screen.say) as crew:
            screen.say(f"copying {len(listing.files)} files, {bytes_text(listing.size)}, each at {bytes_text(world.pace)}/s at most")
            performance = Performance(engine, listing, world, crew, screen, queue)
            await performance.play(workers)
    conclusion = Conclusion(prove(listing, world, performance.watch), performance.plot, performance.watch, crew, world.journal.read())
    conclusion.complain_of_interruptions(are_owed=is_generated)
    conclusion.print_as_json() if is_json else conclusion.print_for_people()
    return DONE if conclusion.proof.holds else FAILED


def pace_for(listing: Listing, workers: int) -> float:
    """Return the bytes a second of one copy: slow enough to watch the largest file, quick enough for all of them."""
    largest = max(file.size for file in listing.files)
    return max(largest / LARGEST_SECONDS, listing.size / (WHOLE_SECONDS * AT_ONCE * workers))
