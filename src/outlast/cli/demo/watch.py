"""Watch: where each file of the demo is, read through the engine's inspector and the journal. It changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from outlast.inspector import Inspector
from outlast.limits import PAGE_MAX
from outlast.run import RunStatus, RunView

from .source import SourceFile
from .world import Journal, owners

STEPS = ("locate", "copy", "verify", "publish", "register")


@dataclass
class FileState:
    """One file on its way."""

    file: SourceFile
    run_id: str
    status: RunStatus = RunStatus.PENDING
    step: str = ""
    done: float = 0.0
    """Bytes copied, as the running step has reported."""
    takeovers: int = 0
    why: str = ""
    pid: int | None = None
    """The process that last began a step of it, as the journal says."""

    def update(self, view: RunView) -> None:
        self.status, self.why, self.takeovers = view.status, view.why, view.recoveries
        self.step = view.current_step or ""
        if view.status is RunStatus.SUCCEEDED or self.step in STEPS[2:]:
            self.done = self.file.size
        elif view.progress is not None:
            self.done = view.progress.done


class Watch:
    """All files of one demo, by run; `queue` holds no other runs."""

    def __init__(self, inspector: Inspector, journal: Journal, queue: str) -> None:
        self._inspector = inspector
        self._journal = journal
        self._queue = queue
        self.files: dict[str, FileState] = {}

    def expect(self, file: SourceFile, run_id: str) -> None:
        self.files[run_id] = FileState(file, run_id)

    async def read(self) -> None:
        """Ask the engine where everything is, and the journal who does it."""
        before = None
        while True:
            page = await self._inspector.list_runs(queue=self._queue, limit=PAGE_MAX, before=before)
            for view in page.runs:
                if view.id in self.files:
                    self.files[view.id].update(view)
            if page.next is None:
                break
            before = page.next
        for run_id, pid in owners(self._journal.read()).items():
            self.files[run_id].pid = pid

    @property
    def is_over(self) -> bool:
        return all(file.status.is_terminal for file in self.files.values())

    @property
    def arrived(self) -> int:
        return sum(file.status is RunStatus.SUCCEEDED for file in self.files.values())

    @property
    def bytes_done(self) -> float:
        return sum(file.done for file in self.files.values())

    def running(self) -> list[FileState]:
        return [file for file in self.files.values() if file.status is RunStatus.RUNNING]
