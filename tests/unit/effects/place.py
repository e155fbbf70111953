"""Place: a file that is moved, and what is looked at afterwards."""

from outlast.effects import MovedFile, move_file
from outlast.effects.stage import Stage

from .files import attempt_of, content, names, sha256

reconcile, undo = move_file.reconciler.function, move_file.undoer.function
SIZE = len(content())
HASH = sha256(content())


class Place:
    """A source, a target, and how a file gets from one to the other."""

    def __init__(self, way, source, target):
        self.way, self.source, self.target = way, source, target
        self.is_copied = way.startswith("copied")

    @property
    def last_point(self):
        """The last one before the old name ends; a rename ends it in the same step."""
        return "published" if self.way.startswith("renamed") else "source leaves"

    def move(self, number=1, reports=None):
        return move_file(attempt_of(number, reports=reports), self.source, self.target)

    def reconcile(self, number=1):
        return reconcile(attempt_of(number), self.source, self.target)

    def undo(self, result):
        undo(attempt_of(), result, self.source, self.target)

    def stage(self, number=1):
        return Stage(attempt_of(number), self.target).path

    def content_anywhere(self):
        """Return whether some name of the two still leads to the whole content."""
        return any(path.exists() and path.read_bytes() == content() for path in (self.source, self.target))

    def assert_moved(self):
        assert self.target.read_bytes() == content()
        assert names(self.target.parent) == ["new.mkv"]
        assert names(self.source.parent) == []

    def assert_at_source(self):
        assert self.source.read_bytes() == content()
        assert names(self.target.parent) == []
        assert names(self.source.parent) == ["film.mkv"]

    @property
    def result(self):
        return MovedFile(self.target, SIZE, HASH if self.is_copied else None)
