"""`outlast show`: one run, why it is where it is, and its history."""

from collections.abc import Iterator

import click

from outlast.clock import SystemClock
from outlast.decision import DecisionView
from outlast.failure import Failure
from outlast.inspector import ActionView, OperationView
from outlast.run import Progress, RunView, StepView

from .application import DONE, Application, Reach, app_option, database_option, execute, json_option
from .output import bytes_text, instant_text, print_json, print_line, print_table, span_text

VALUE_CHARACTERS_MAX = 300  # a value that is longer is read with --json


@click.command()
@click.argument("run_id", metavar="RUN")
@database_option
@app_option
@json_option
@click.option("--traceback", "has_traceback", is_flag=True, help="Print where errors were raised.")
def show(run_id: str, database: str | None, app: str | None, is_json: bool, has_traceback: bool) -> None:
    """Show a run, why it is where it is, and its history."""

    async def act(engine: Application) -> int:
        run, history = await engine.get(run_id), await engine.inspector.get_history(run_id)
        operations = await engine.inspector.list_operations(run_id)
        decisions = await engine.inspector.list_decisions(run_id)
        actions = await engine.inspector.list_actions(run_id=run_id)
        if is_json:
            print_json({"run": run, "history": history, "operations": operations, "decisions": decisions, "actions": actions})
        else:
            _print_run(run, history, actions, has_traceback)
            _print_operations(run, operations, has_traceback)
            _print_decisions(decisions)
        return DONE

    execute(Reach(database, app), act)


def _print_run(run: RunView, history: tuple[StepView, ...], actions: tuple[ActionView, ...], has_traceback: bool) -> None:
    facts = [*_facts(run), *((one.action, f"by {one.actor} at {instant_text(one.at)}: {one.reason}") for one in actions)]
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print_line(f"{name.ljust(width)}  {value}")
    if run.error is not None:
        _print_failure(run.error, has_traceback)
    if history:
        print_line()
        print_table(("STEP", "STATUS", "ATTEMPTS", "TOOK", "RESULT"), [_row(step) for step in history])
    if has_traceback:
        for step in history:
            if step.error is not None:
                print_line(f"\nstep {step.key}".strip())
                _print_failure(step.error, has_traceback)


def _print_operations(run: RunView, operations: tuple[OperationView, ...], has_traceback: bool) -> None:
    if operations:
        print_line()
        print_table(("EFFECT", "STATUS", "AT", "WHAT"), [row for operation in operations for row in _operation_rows(run, operation)])
    if has_traceback:
        for operation in operations:
            for attempt in operation.attempts:
                if attempt.error is not None:
                    print_line(f"\neffect {operation.effect}, attempt {attempt.number}")
                    _print_failure(attempt.error, has_traceback)


def _operation_rows(run: RunView, operation: OperationView) -> Iterator[tuple[str, str, str, str]]:
    """What was planned and what came of it, and below that each attempt."""
    what = _shortened(operation.arguments or "[]")
    if operation.result is not None:
        what += f" -> {_shortened(operation.result)}"
    if operation.decision is not None:
        what += f"; decision {operation.decision}"
    if not operation.key.startswith(f"{run.id}/"):
        what = f"key {operation.key}: {what}"
    yield operation.effect, operation.status, instant_text(operation.planned_at), what
    for attempt in operation.attempts:
        said = f"token {attempt.token}" + (f": {attempt.error}" if attempt.error is not None else "")
        if attempt.late is not None:
            said += f"; came late and was refused: {_shortened(attempt.late)}"
        yield f"  attempt {attempt.number}", attempt.outcome or "no outcome", instant_text(attempt.started_at), said


def _print_decisions(decisions: tuple[DecisionView, ...]) -> None:
    if decisions:
        print_line()
        print_table(("DECISION", "STATE", "STEP", "ANSWER", "QUESTION"), [(one.id, str(one.state), one.step, _answer(one), one.question) for one in decisions])


def _answer(decision: DecisionView) -> str:
    if decision.answer is None:
        return "|".join(decision.options)
    note = f": {decision.note}" if decision.note else ""
    return f"{decision.answer} by {decision.answered_by}{note}"


def _facts(run: RunView) -> Iterator[tuple[str, str]]:
    yield "run", run.id
    yield "task", f"{run.kind} v{run.version}, queue {run.queue}, priority {run.priority}"
    yield "status", str(run.status)
    if run.why:
        yield "why", run.why
    if run.current_step is not None:
        yield "at step", f"{run.current_step} {_progress_text(run.progress)}".rstrip()
    if run.worker is not None:
        yield "worker", run.worker
    for name, instant in (("created", run.created_at), ("started", run.started_at), ("finished", run.finished_at), ("due", run.due_at)):
        if instant is not None:
            yield name, instant_text(instant)
    yield from _rare_facts(run)
    yield "input", _shortened(run.input)
    if run.output is not None:
        yield "output", _shortened(run.output)


def _rare_facts(run: RunView) -> Iterator[tuple[str, str]]:
    if run.deadline_at is not None:
        yield "deadline", instant_text(run.deadline_at)
    if run.idempotency_key is not None:
        yield "key", run.idempotency_key
    counts = {"generation": run.generation, "attempts failed": run.attempts, "takeovers": run.recoveries, "strikes": run.strikes}
    if any(counts.values()):
        yield "counts", ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    if run.cancel_reason is not None:
        yield "canceled", run.cancel_reason
    if run.verdict is not None:
        yield "told body", run.verdict
    if run.tags:
        yield "tags", ", ".join(run.tags)
    for name, value in run.headers.items():
        yield "header", f"{name}: {value}"
    for warning in run.warnings:
        yield "warning", warning


def _row(step: StepView) -> tuple[str, str, str, str, str]:
    return step.key, step.status, str(step.attempts), _took(step), _outcome(step)


def _took(step: StepView) -> str:
    if step.started_at is None:
        return ""
    return span_text((step.finished_at or SystemClock().now()) - step.started_at)


def _outcome(step: StepView) -> str:
    if step.error is not None:
        again = f"; again at {instant_text(step.due_at)}" if step.due_at is not None else ""
        return f"{step.error}{again}"
    if step.result is not None:
        return _shortened(step.result)
    if step.topic is not None:
        until = f", until {instant_text(step.due_at)}" if step.due_at is not None else ""
        return f"waits for topic {step.topic}{until}"
    if step.due_at is not None and step.finished_at is None:
        return f"until {instant_text(step.due_at)}"
    return _progress_text(step.progress)


def _progress_text(progress: Progress | None) -> str:
    if progress is None:
        return ""
    if progress.total:
        return f"{100 * progress.done / progress.total:.0f} % of {progress.total:g} {progress.note}".rstrip()
    return f"{progress.done:g} {progress.note}".rstrip()


def _print_failure(failure: Failure, has_traceback: bool) -> None:
    while True:
        for line in (failure.traceback if has_traceback else "").splitlines():
            print_line(f"  {line}")
        print_line(f"error: {failure}")
        if failure.cause is None:
            return
        print_line("caused by")
        failure = failure.cause


def _shortened(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}... ({bytes_text(len(text))}; whole with --json)"
