"""Conclusion: what the demo prints at its end: what was interrupted, where each went on, and the proof."""

from __future__ import annotations

from outlast.cli.output import print_json, print_line

from .crew import Crew
from .plot import Continuation, Plot, went_on
from .proof import Proof
from .watch import Watch
from .world import Entry


class Conclusion:
    """A proof together with what happened to the workers."""

    def __init__(self, proof: Proof, plot: Plot, watch: Watch, crew: Crew, journal: list[Entry]) -> None:
        self.proof = proof
        self._plot = plot
        self._watch = watch
        self._crew = crew
        self._continuations = [went_on(journal, interruption, entry) for interruption in plot.interruptions for entry in interruption.open]

    def complain_of_interruptions(self, *, are_owed: bool) -> None:
        """Add what the interruptions should have shown and did not: a demo in which nothing was interrupted has shown nothing."""
        complaints = self.proof.complaints
        complaints.extend(f"step {each.cut_off.step} of run {each.cut_off.run} never went on" for each in self._continuations if each.again is None)
        frozen = self._plot.frozen
        if frozen is not None and not frozen.refusals:
            complaints.append(f"worker {frozen.number} was thawed and never told that its lease is lost")
        if are_owed and len(self._plot.interruptions) < 2:
            complaints.append("the files had arrived before a worker was killed and another was frozen")

    def print_as_json(self) -> None:
        """Print one object for programs."""
        proof, frozen = self.proof, self._plot.frozen
        print_json(
            {
                "files": proof.files,
                "whole": proof.whole,
                "registered": proof.registered,
                "succeeded": proof.succeeded,
                "interrupted": [self._fields(each) for each in self._continuations],
                "refused_after_thaw": [] if frozen is None else frozen.refusals,
                "complaints": [ascii(each)[1:-1] for each in proof.complaints],
                "holds": proof.holds,
            }
        )

    def _fields(self, each: Continuation) -> dict[str, object]:
        return {
            "file": ascii(str(self._watch.files[each.cut_off.run].file.name))[1:-1],
            "step": each.cut_off.step,
            "worker": each.interruption.member.number,
            "how": each.interruption.how,
            "went_on_at_byte": each.byte if each.cut_off.step == "copy" else None,
            "takeover_seconds": round(each.seconds, 3) if each.again else None,
        }

    def print_for_people(self) -> None:
        """Print it as text."""
        print_line()
        for interruption in self._plot.interruptions:
            print_line(f"Worker {interruption.member.number} was {interruption.how} in the middle of these, and they went on:")
            for each in self._continuations:
                if each.interruption is interruption:
                    print_line(f"  {self._text(each)}")
        if not self._plot.interruptions:
            print_line("Nothing was interrupted: the files had arrived before a worker was in the middle of a copy.")
        self._print_refusals()
        print_line()
        self._print_proof()

    def _text(self, each: Continuation) -> str:
        file, step = self._watch.files[each.cut_off.run].file, each.cut_off.step
        if each.again is None:
            return f"{file.name}: {step}, which never went on"
        member = self._crew.find(each.again.pid)
        place = f" at byte {each.byte:,} of {file.size:,}" if step == "copy" else ""
        where = f", worker {member.number}" if member else ""
        return f"{file.name}: {step}{place}{where}, {each.seconds:.1f} s later"

    def _print_refusals(self) -> None:
        frozen = self._plot.frozen
        if frozen is None:
            return
        print_line(f"Worker {frozen.number}, thawed after {self._plot.frozen_seconds:.1f} s, was told that its runs are no longer its own:")
        for refusal in frozen.refusals:
            print_line(f"  {refusal}")
        print_line(f"  {self._plot.told_steps} of its steps stopped there, in files that have no name any more")

    def _print_proof(self) -> None:
        proof = self.proof
        print_line(f"{proof.whole} of {proof.files} files arrived whole: SHA-256 of each source against its target")
        print_line(f"{proof.registered} of {proof.files} are in the register exactly once; {proof.succeeded} of {proof.files} runs succeeded")
        for complaint in proof.complaints:
            print_line(f"NOT PROVEN: {complaint}")
        if proof.holds:
            print_line("Nothing is left over and nothing is there twice: it holds.")
