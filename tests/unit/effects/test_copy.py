"""copy_file: whole and verified under the final name, or not there; what it refuses; sources that change; names."""

import os
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.effect import Done, NotDone
from outlast.effects import CopiedFile, TargetExistsError, copy_file
from outlast.errors import FinalError

from .files import CHUNK, At, Reports, attempt_of, content, copy, names, rewritten, sha256

reconcile, undo = copy_file.reconciler.function, copy_file.undoer.function


def test_a_copy_is_whole_and_its_result_says_so(source, target):
    """Content, size, hash, permissions and times are the source's, and no temporary name is left."""
    copied = copy(source, target)
    assert copied == CopiedFile(target, len(content()), sha256(content()))
    assert target.read_bytes() == content()
    found = target.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o640, 2_000_000_000)
    assert names(target.parent) == ["film.mkv"]
    assert source.read_bytes() == content()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
def test_sizes_around_a_chunk_are_copied(source, target, size):
    """Empty files, and files that end at a chunk or beside it, arrive whole."""
    source.write_bytes(content(size))
    assert copy(source, target).sha256 == sha256(content(size))
    assert target.read_bytes() == content(size)


def test_progress_is_told_in_bytes_and_ends_with_the_size(source, target):
    """Each chunk reports how many bytes of how many are done."""
    reports = Reports()
    copy(source, target, reports=reports)
    size = len(content())
    assert [each.done for each in reports if not each.note] == [0, CHUNK, 2 * CHUNK, 3 * CHUNK, size]
    assert {each.total for each in reports} == {size}


def test_permissions_beyond_the_ordinary_are_not_copied(source, target):
    """A set-user-id bit would give its powers to another owner."""
    source.chmod(0o4755)
    copy(source, target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


def test_a_file_that_only_its_group_may_read_is_read_back(source, target):
    """The copy is verified through what is open already, whatever the permissions that it was given."""
    source.chmod(0o040)
    copy(source, target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o040


def test_a_symbolic_link_is_followed(source, target):
    """What the link leads to is copied, not the link."""
    link = source.with_name("link")
    link.symlink_to("film.mkv")
    copy(link, target)
    assert target.read_bytes() == content()
    assert not target.is_symlink()


# --- refused ------------------------------------------------------------------------------------------------------------
def test_other_content_is_never_overwritten(source, target):
    """A target of somebody else's stays as it is, and the error says what to do."""
    target.write_bytes(b"precious")
    with pytest.raises(TargetExistsError, match="never overwritten: remove it, or choose another name"):
        copy(source, target)
    target.write_bytes(content()[:-1] + b"x")
    with pytest.raises(TargetExistsError):
        copy(source, target)
    assert target.read_bytes() == content()[:-1] + b"x"
    assert names(target.parent) == ["film.mkv"]


def test_a_link_under_the_final_name_is_not_followed(source, target):
    """A symbolic link is somebody's, even one that leads nowhere."""
    target.symlink_to("nowhere")
    with pytest.raises(TargetExistsError):
        copy(source, target)
    assert os.readlink(target) == "nowhere"


def test_the_same_content_is_the_result(source, target):
    """A target that is there with the same content is done, marked as not made here, and undo leaves it."""
    target.write_bytes(content())
    copied = copy(source, target)
    assert copied.was_there
    undo(attempt_of(), copied, source, target)
    assert target.read_bytes() == content()


def test_what_is_no_ordinary_file_is_refused(source, target, tmp_path):
    """Folders, pipes and devices are refused without waiting for them."""
    os.mkfifo(tmp_path / "pipe")
    for wrong, kind in ((tmp_path, "a folder"), (tmp_path / "pipe", "a device, pipe or socket")):
        with pytest.raises(FinalError, match=kind):
            copy(wrong, target)
    assert names(target.parent) == []


def test_one_file_under_two_names_is_refused(source, tmp_path):
    """A copy onto itself, by the same name, a hard link or a way around, would be taken back at the source's cost."""
    os.link(source, tmp_path / "twin")
    for same in (source, tmp_path / "from" / ".." / "from" / "film.mkv", tmp_path / "twin"):
        with pytest.raises(FinalError, match="are one file"):
            copy(source, same)
    assert source.read_bytes() == content()


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_relative_path_is_refused(source, target, which, monkeypatch):
    """Another worker's current folder is another, so the reconciler would look in the wrong place."""
    paths = {"source": source, "target": target}
    monkeypatch.chdir(paths[which].parent)
    paths[which] = paths[which].relative_to(paths[which].parent)
    with pytest.raises(FinalError, match=f"{which} .* is relative"):
        copy_file(attempt_of(), **paths)
    verdict = reconcile(attempt_of(), **paths)
    assert isinstance(verdict, NotDone)
    assert verdict.revoked


def test_a_missing_source_or_folder_is_not_done(source, target):
    """Nothing was done, so the policy's attempts go on: the disk may come back."""
    with pytest.raises(NotDone) as missing:
        copy(source.with_name("none"), target)
    assert isinstance(missing.value.cause, FileNotFoundError)
    with pytest.raises(NotDone, match="create it, or mount its disk"):
        copy(source, target.parent / "none" / "film.mkv")


# --- names ------------------------------------------------------------------------------------------------------------------
@settings(max_examples=60)
@given(name=st.binary(min_size=1, max_size=255).filter(lambda name: not set(name) & {0, ord("/")} and name not in (b".", b"..")))
def test_any_name_that_a_file_can_have_is_copied(name, tmp_path_factory):
    """All bytes but two, UTF-8 or not, up to the longest name; paths and results survive storage too."""
    folder = tmp_path_factory.mktemp("names")
    for part in ("from", "to"):
        (folder / part).mkdir()
    source, target = folder / "from" / os.fsdecode(name), folder / "to" / os.fsdecode(name)
    source.write_bytes(name)
    signature = copy_file.step.signature
    arguments, _ = signature.decode_arguments(signature.encode_arguments((source, target), {}, "arguments"), "arguments")
    assert list(arguments) == [source, target]
    copied = copy(*arguments)
    assert signature.result.decode(signature.result.encode(copied, "result"), "result") == copied
    assert os.listdir(os.fsencode(target.parent)) == [name]
    assert target.read_bytes() == name
    verdict = reconcile(attempt_of(), source, target)
    assert isinstance(verdict, Done)
    assert (verdict.result.path, verdict.result.sha256) == (target, copied.sha256)
    undo(attempt_of(), copied, source, target)
    assert os.listdir(target.parent) == []


# --- sources that change ------------------------------------------------------------------------------------------------------
def rewritten_with_its_time_set_back(source):
    found = source.stat()
    rewritten(source)
    os.utime(source, ns=(found.st_atime_ns, found.st_mtime_ns))


def exchanged(source):
    other = source.with_name("other")
    other.write_bytes(content())
    other.replace(source)


CHANGES = {
    "appended": lambda source: source.open("ab").write(b"more"),
    "truncated": lambda source: os.truncate(source, CHUNK // 2),
    "rewritten": rewritten,
    "rewritten with its time set back": rewritten_with_its_time_set_back,
    "exchanged": exchanged,
    "removed": os.unlink,
}


@pytest.mark.parametrize("point", ["source opened", "chunk written", "stage written"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.filterwarnings("ignore:unclosed file")
def test_a_source_that_changes_is_not_copied(source, target, monkeypatch, change, point):
    """Whatever happens to the source while it is copied, nothing comes under the final name and nothing is left."""
    At(monkeypatch, point, lambda: CHANGES[change](source))
    with pytest.raises(NotDone, match="changed while it was read"):
        copy(source, target)
    assert names(target.parent) == []


def test_a_source_that_grows_for_ever_ends_the_attempt(source, target, monkeypatch):
    """At most one chunk more than it had is read."""
    growing = At(monkeypatch, "chunk written", lambda: None)
    inner = growing._reached

    def grow(point):
        inner(point)
        with source.open("ab") as file:
            file.write(bytes(CHUNK))

    monkeypatch.setattr("outlast.effects.fault_points.reached", grow)
    with pytest.raises(NotDone, match="changed"):
        copy(source, target)
    assert growing.seen.count("chunk written") <= 5
