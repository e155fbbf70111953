"""Identifiers: their form, that they differ where they must, and that they are equal where they must."""

import string
import subprocess
import sys
import threading
import uuid

from hypothesis import given
from hypothesis import strategies as st

from outlast import ids


def test_run_id_is_a_uuid_of_version_7():
    """Every id has the canonical form, its version and its variant."""
    for _ in range(1_000):
        text = ids.run_id()
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert parsed.variant == uuid.RFC_4122
        assert parsed.version == 7
        assert ids.is_run_id(text)


def test_run_ids_sort_by_time_and_differ():
    """Ids of later milliseconds sort later, and none comes twice."""
    made = [ids.run_id() for _ in range(5_000)]
    assert len(set(made)) == len(made)
    assert [text[:13] for text in made] == sorted(text[:13] for text in made)


@given(st.text(string.printable))
def test_other_texts_are_no_run_ids(text):
    """Text that is not the canonical form of a UUID is refused and never raises."""
    assert ids.is_run_id(text) is False


def test_other_spellings_of_a_uuid_are_no_run_ids():
    """One run has one id: upper case, braces and missing hyphens are other texts."""
    text = ids.run_id()
    for other in (text.upper().replace("0", "A"), f"{{{text}}}", text.replace("-", ""), f"urn:uuid:{text}", f"{text} "):
        assert not ids.is_run_id(other)


def test_worker_ids_fit_an_advisory_lock_key():
    """They are positive, of 62 bits, and do not repeat."""
    made = {ids.worker_id() for _ in range(1_000)}
    assert len(made) == 1_000
    assert all(1 << 61 <= one < 1 << 62 for one in made)


def test_process_nonce_is_one_for_all_threads():
    """The name is the process's, whichever thread asks first."""
    heard, threads = [], [threading.Thread(target=lambda: heard.append(ids.process_nonce())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(heard) == {ids.process_nonce()}


def test_process_nonce_is_another_after_a_fork():
    """A child does not take itself for its parent, nor the parent itself for its child."""
    program = """if True:
        import os
        from outlast.ids import process_nonce
        before = process_nonce()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        print(before, process_nonce(), flush=True)
    """
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    (child_before, child_after), (parent_before, parent_after) = (line.split() for line in printed.splitlines())
    assert child_before == parent_before == parent_after
    assert child_after != parent_after


seeds, generations, labels = st.integers(0, 1 << 62), st.integers(0, 100), st.text(max_size=30)


@given(seeds, generations, labels)
def test_derived_values_are_the_same_at_every_replay(seed, generation, label):
    """They depend on seed, generation and label, and on nothing else."""
    assert ids.derived_uuid(seed, generation, label) == ids.derived_uuid(seed, generation, label)
    assert ids.derived_uuid(seed, generation, label).version == 4
    assert ids.derived_random(seed, generation, label) == ids.derived_random(seed, generation, label)
    assert 0 <= ids.derived_random(seed, generation, label) < 1
    assert ids.derived(seed, generation, label) != ids.derived(seed, generation + 1, label)
    assert ids.derived(seed, generation, label) != ids.derived(seed + 1, generation, label)


def test_derived_values_are_frozen():
    """Runs that began under an older release replay under a newer one, so these never change."""
    assert ids.derived(1, 0, "$uuid").hex() == "be3ca93d23415391c0220b897d904702"
    assert str(ids.derived_uuid(1, 0, "0.1/$uuid:2")) == "48215778-048d-483d-827a-c994962f4485"
    assert ids.derived_random(1, 0, "$random") == 0.3887322781104523


def test_jitter_is_a_share():
    """It is in [0, 1), and not always the same."""
    made = [ids.jitter() for _ in range(100)]
    assert all(0 <= one < 1 for one in made)
    assert len(set(made)) > 1
