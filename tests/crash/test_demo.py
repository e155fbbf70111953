"""The demo, run as a user runs it, on each database: what it claims is compared with the files that it leaves."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SECONDS_MAX = 150.0
SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def demo(tmp_path):
    """Start a demo whose temporary folders are made in the test's own; it is killed at the end if it lives."""
    started = []

    def start(*arguments):
        (tmp_path / "temporary").mkdir()
        environment = os.environ | {"PYTHONPATH": SOURCE, "TMPDIR": str(tmp_path / "temporary"), "COLUMNS": "100"}
        environment.pop("OUTLAST_DATABASE_URL", None)
        command = [sys.executable, "-m", "outlast", "demo", *arguments]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def conclusion_of(process):
    """Wait for a demo's end; return its exit code and the last object that it printed."""
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert out, err
    return process.returncode, json.loads(out.splitlines()[-1])


def workers_in(folder):
    """The living processes that were started for a demo in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"OUTLAST_DEMO_FOLDER={folder}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue  # it ended meanwhile, or is another user's
    return found


def digests(folder):
    """The content of every file below a folder, by its name as the file system has it."""
    files = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
    return {os.fsencode(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_demo_proves_what_it_claims(demo, database_url, tmp_path):
    """One worker is killed and one frozen in the middle of copies, and every file arrives whole and once, on either database."""
    code, conclusion = conclusion_of(demo("--database", database_url, "--json"))
    assert (code, conclusion["holds"], conclusion["complaints"]) == (0, True, [])
    assert conclusion["files"] == conclusion["whole"] == conclusion["registered"] == conclusion["succeeded"] >= 36
    assert {each["how"] for each in conclusion["interrupted"]} == {"killed", "frozen"}
    assert any(each["went_on_at_byte"] for each in conclusion["interrupted"] if each["how"] == "killed")
    assert any(each["went_on_at_byte"] for each in conclusion["interrupted"] if each["how"] == "frozen")
    assert conclusion["refused_after_thaw"]
    assert not list((tmp_path / "temporary").iterdir())
    assert not workers_in(tmp_path)


def test_a_folder_of_the_user_is_copied_and_not_touched(demo, tmp_path):
    """Nested folders, odd and non-UTF-8 names arrive with the same bytes; the source stays as it was; links are named and left out."""
    source = tmp_path / "source"
    (source / "inner \n folder").mkdir(parents=True)
    for name, size in ((b"plain", 3_000_000), (b"inner \n folder/\xff\x1b[31m.bin", 1_000), (b"empty", 0)):
        (source / os.fsdecode(name)).write_bytes(hashlib.shake_128(name).digest(size))
    (source / "link").symlink_to("plain")
    before = digests(source)
    process = demo("--source", str(source), "--keep")
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, out + err
    assert "3 of 3 files arrived whole" in out
    assert "link" in err
    assert "\x1b" not in out + err
    (folder,) = (tmp_path / "temporary").iterdir()
    assert digests(source) == before
    assert digests(folder / "library") == {name: digest for name, digest in before.items() if name != b"link"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(demo, tmp_path, number):
    """Whoever stops the demo in the middle, even while a worker is frozen, finds no worker and no folder afterwards."""
    process = demo("--json")
    for line in process.stdout:
        if "SIGSTOP" in line:
            break
    assert workers_in(tmp_path)
    process.send_signal(number)
    process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1
    assert not workers_in(tmp_path)
    assert not list((tmp_path / "temporary").iterdir())


def test_workers_do_not_outlive_a_killed_demo(demo, tmp_path):
    """A demo that is killed cannot end its workers; they end by themselves."""
    process = demo("--json")
    for line in process.stdout:
        if "SIGKILL" in line:
            break
    process.kill()
    process.wait()
    end = time.monotonic() + 60
    while workers_in(tmp_path):
        assert time.monotonic() < end, "workers live on without their demo"
        time.sleep(0.05)


def test_an_empty_folder_is_wrong_use(demo, tmp_path):
    """A folder without files is refused with exit code 2 before anything is made."""
    (tmp_path / "source").mkdir()
    process = demo("--source", str(tmp_path / "source"))
    _, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 2
    assert "no file" in err
