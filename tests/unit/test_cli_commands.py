"""The commands: what they ask the ports for, what they print, and the exit codes. The ports are stand-ins that note what they are asked."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from outlast.cli import COMMANDS, main
from outlast.cli.application import user_name
from outlast.errors import IdempotencyConflictError, RunFailedError, RunNotFoundError, SchemaError, UnavailableError
from outlast.failure import Failure
from outlast.inspector import ActionView, BoundedCount, LaneView, OperationAttemptView, OperationView, RunPage, StrandedView, WorkerView
from outlast.operator import PruneReport, QueueView
from outlast.run import CancelOutcome, Progress, RunStatus, StepView

from .test_cli_output import a_run

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Ports:
    """Engine, inspector and operator in one: answers what a test has set, and notes the calls."""

    def __init__(self):
        self.calls = []
        self.run = a_run(status=RunStatus.SUCCEEDED, output="42")
        self.outcome = CancelOutcome.REQUESTED
        self.error = None
        self.result_error = None
        self.history = ()
        self.operations = ()
        self.tasks = ()
        self.queue = QueueView("night", NOW, True, 1)
        self.report = PruneReport(2, 0, 1)
        self.stranded = (StrandedView("night", "import", 2, BoundedCount(1000, True), "no worker has import v2"),)
        self.decisions = ()
        self.inspector = self.operator = self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        self.calls.append(("closed",))

    def note(self, *call, **options):
        self.calls.append((*call, options))
        if self.error is not None:
            raise self.error

    async def enqueue(self, task, *inputs, **options):
        self.note("enqueue", task.name, task.version, *inputs, **options)
        return SimpleNamespace(id="r1", created=True, result=self.result, view=self.view)

    async def result(self, *, timeout):
        self.note("result", timeout)
        if self.result_error is not None:
            raise self.result_error
        return 42

    async def view(self):
        return self.run

    async def get(self, run_id):
        self.note("get", run_id)
        return self.run

    async def cancel(self, run_id, *, reason):
        self.note("cancel", run_id, reason=reason)
        return self.outcome

    async def retry(self, run_id, *, actor, reason):
        self.note("retry", run_id, actor=actor, reason=reason)
        return a_run(status=RunStatus.PENDING, why="waits for a worker")

    async def list_runs(self, **filters):
        self.note("list_runs", **filters)
        return RunPage((self.run,), next="further")

    async def list_operations(self, run_id):
        return self.operations

    async def get_history(self, run_id):
        return self.history

    async def list_workers(self, *, only_alive):
        self.note("list_workers", only_alive=only_alive)
        return (WorkerView("7", "host/12", False, "dead", NOW, NOW, NOW, 0, ("default",), 50, ("import v2",)),)

    async def list_actions(self, *, run_id):
        self.note("list_actions", run_id)
        return (ActionView(NOW, "ann", "retry", run_id, None, None, "the disk\x1b is back"),)

    async def list_lanes(self):
        return (LaneView("night", "import", 2, NOW, False, BoundedCount(1000, True), BoundedCount(0), BoundedCount(7)),)

    async def list_stranded(self):
        return self.stranded

    async def pause_queue(self, name, *, actor, reason):
        self.note("pause_queue", name, actor=actor, reason=reason)
        return self.queue

    async def unpause_queue(self, name, *, actor, reason):
        self.note("unpause_queue", name, actor=actor, reason=reason)
        return self.queue

    async def discard(self, run_id, *, actor, reason):
        self.note("discard", run_id, actor=actor, reason=reason)
        return a_run(status=RunStatus.CANCELED, why=f"canceled: {reason}")

    async def prune(self, older_than, **options):
        self.note("prune", older_than, **options)
        return self.report

    async def list_decisions(self, run_id):
        return self.decisions

    async def migrate(self):
        self.note("migrate")
        return ["0001_native"]

    def migration_script(self):
        return "create ..."


@pytest.fixture
def ports(monkeypatch):
    """The application that `--app app_of_test:engine` names."""
    ports = Ports()
    monkeypatch.setitem(sys.modules, "app_of_test", SimpleNamespace(engine=ports))
    return ports


def outlast(*arguments, input=None):
    """Call a command with the stand-in application."""
    return CliRunner().invoke(main, [*arguments, "--app", "app_of_test:engine"], input=input)


def test_every_command_has_help():
    """Each command that the list names can be loaded, and says what it does in the list's own words or more."""
    for name in COMMANDS:
        done = CliRunner().invoke(main, [name, "--help"])
        assert done.exit_code == 0, done.output
        assert "--json" in done.output


def test_help_loads_no_framework_of_tables_and_no_driver():
    """`outlast --help` is quick because it loads no command, no rich and no database."""
    code = "import sys; from outlast.cli import main; main(['--help'], standalone_mode=False); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(eval(done.stdout.splitlines()[-1]))
    assert not loaded & {"rich", "sqlite3", "psycopg", "outlast.cli.runs", "outlast.native.engine"}


def test_runs_are_filtered_and_listed(ports):
    """The filters reach the inspector, and the place of the next page is printed."""
    done = outlast("runs", "--status", "failed", "--kind", "import", "--queue", "slow", "--limit", "7", "--before", "here")
    assert done.exit_code == 0, done.output
    assert ports.calls[0] == ("list_runs", {"status": RunStatus.FAILED, "kind": "import", "queue": "slow", "limit": 7, "before": "here"})
    assert "r1" in done.output
    assert "--before further" in done.output
    assert ports.calls[-1] == ("closed",)


def test_runs_as_json(ports):
    """A program gets the page as one object."""
    assert json.loads(outlast("runs", "--json").output)["runs"][0]["output"] == 42


def test_show_prints_why_and_the_history(ports):
    """A run is shown with why it does not move, its steps, their progress and its error."""
    failure = Failure("builtins.OSError", "disk \x1b[31mfull", traceback="  File x\n", cause=Failure("ValueError", "inner"))
    ports.run = a_run(status=RunStatus.FAILED, why="its step failed", error=failure, current_step="copy", progress=Progress(5, 10))
    ports.history = (
        StepView("locate", "step", "done", 1, NOW, NOW, result='{"path": "/x"}'),
        StepView("copy", "step", "failed", 3, NOW, NOW, error=failure),
        StepView("sleep", "timer", "waiting", 0, None, None, due_at=NOW),
    )
    done = outlast("show", "r1", "--traceback")
    assert done.exit_code == 0, done.output
    assert "its step failed" in done.output
    assert '{"path": "/x"}' in done.output
    assert "50 % of 10" in done.output
    assert "until 2026-01-01 00:00:00Z" in done.output
    assert "caused by" in done.output
    assert "\x1b" not in done.output


def test_show_as_json(ports):
    """A program gets the run and its history."""
    ports.history = (StepView("locate", "step", "done", 1, NOW, NOW, result="[1]"),)
    shown = json.loads(outlast("show", "r1", "--json").output)
    assert shown["run"]["status"] == "succeeded"
    assert shown["history"][0]["result"] == [1]


def test_show_prints_what_the_ledger_has(ports):
    """Each effect with arguments, result and question, and every attempt with its token, its error and what came late."""
    failure = Failure("builtins.OSError", "port\x1b 80", traceback="  File x\n")
    attempts = (
        OperationAttemptView(1, 40, NOW, NOW, "not_done", failure, '"late"'),
        OperationAttemptView(2, 41, NOW, None, None, None, None),
    )
    done = OperationView("pay", "r1/0/pay", "done", "[5]", '{"id": 6}', None, None, NOW, NOW, attempts[:1])
    asked = OperationView("ship", "order-1", "asked", "", None, None, "d1", NOW, NOW, attempts[1:])
    ports.operations = (done, asked)
    output = outlast("show", "r1").output
    assert re.search(r'pay +done +2026-01-01 00:00:00Z +\[5\] -> {"id": 6}\n', output)
    assert re.search(r'  attempt 1 +not_done +2026-01-01 00:00:00Z +token 40: OSError: port\\x1b 80; came late and was refused: "late"\n', output)
    assert re.search(r"ship +asked +2026-01-01 00:00:00Z +key order-1: \[\]; decision d1\n", output)
    assert re.search(r"  attempt 2 +no outcome +2026-01-01 00:00:00Z +token 41\n", output)
    assert "File x" not in output
    assert "effect pay, attempt 1\n    File x" in outlast("show", "r1", "--traceback").output


def test_show_gives_a_program_what_the_ledger_has(ports):
    """Arguments, results and what came late as the values that they are."""
    attempt = OperationAttemptView(1, 40, NOW, NOW, "done", None, '"late"')
    ports.operations = (OperationView("pay", "key", "done", "", '{"id": 6}', None, None, NOW, NOW, (attempt,)),)
    [shown] = json.loads(outlast("show", "r1", "--json").output)["operations"]
    assert (shown["arguments"], shown["result"], shown["attempts"][0]["late"], shown["attempts"][0]["token"]) == (None, {"id": 6}, "late", 40)


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (CancelOutcome.REQUESTED, RunStatus.RUNNING, 0),
        (CancelOutcome.CANCELED, RunStatus.CANCELED, 0),
        (CancelOutcome.ALREADY_OVER, RunStatus.CANCELED, 0),
        (CancelOutcome.ALREADY_OVER, RunStatus.SUCCEEDED, 1),
    ],
)
def test_cancel_fails_only_where_the_run_ended_otherwise(ports, outcome, status, code):
    """The exit code says whether the run ends, or has ended, as canceled."""
    ports.outcome, ports.run = outcome, a_run(status=status)
    done = outlast("cancel", "r1", "--reason", "not wanted")
    assert done.exit_code == code
    assert ports.calls[0] == ("cancel", "r1", {"reason": "not wanted"})


def test_retry_says_who_and_why(ports):
    """An operator's retry carries a name and a reason."""
    done = outlast("retry", "r1", "--actor", "ann", "--reason", "fixed")
    assert done.exit_code == 0, done.output
    assert ports.calls[0] == ("retry", "r1", {"actor": "ann", "reason": "fixed"})
    assert "pending: waits for a worker" in done.output


def test_show_says_what_operators_did(ports):
    """Who did what to a run and why stands with it, escaped as everything."""
    done = outlast("show", "r1")
    assert "by ann at 2026-01-01 00:00:00Z: the disk\\x1b is back" in done.output
    assert json.loads(outlast("show", "r1", "--json").output)["actions"][0]["action"] == "retry"


@pytest.mark.parametrize("command", ["pause", "unpause"])
def test_a_queue_is_paused_and_unpaused(ports, command):
    """Who and why reach the operator; by default the user who runs the command."""
    done = outlast(command, "night", "--actor", "ann", "--reason", "disk full")
    assert done.exit_code == 0, done.output
    assert ports.calls[0] == (f"{command}_queue", "night", {"actor": "ann", "reason": "disk full"})
    assert json.loads(outlast(command, "night", "--json").output)["name"] == "night"
    actor = ports.calls[2][-1]["actor"]
    assert actor == user_name()


def test_what_did_not_change_is_said(ports):
    """A queue that was paused already, one that was not, and a name that nothing has used."""
    assert outlast("pause", "night").output == "queue night is paused\n"
    assert outlast("unpause", "night").output == "queue night goes on\n"
    ports.queue = QueueView("night", NOW, False, 0)
    assert outlast("pause", "night").output == "queue night has been paused since 2026-01-01 00:00:00Z; nothing was ever enqueued to it: is that its name?\n"
    assert outlast("unpause", "night").output == "queue night was not paused\n"


def test_discard_says_who_and_why(ports):
    """An operator's discard carries a name and a reason."""
    done = outlast("discard", "r1", "--actor", "ann", "--reason", "ordered twice")
    assert ports.calls[0] == ("discard", "r1", {"actor": "ann", "reason": "ordered twice"})
    assert done.output == "canceled: ordered twice\n"


def test_prune_says_what_it_deleted(ports):
    """Ages reach the operator in seconds, keys only if asked for; what was kept is told with what to do about it."""
    done = outlast("prune", "--older-than", "30d", "--actor", "ann", "--reason", "old")
    assert done.output == "2 runs and 1 key deleted\n"
    options = {"keys_older_than": None, "dead_letters": False, "actor": "ann", "reason": "old"}
    assert ports.calls[0] == ("prune", 30 * 86400.0, options)
    ports.report = PruneReport(0, 3, 0)
    done = outlast("prune", "--older-than", "1", "--keys-older-than", "90d", "--dead-letters")
    assert "3 failed or dead kept" in done.output
    options = ports.calls[-2][-1]
    assert (options["keys_older_than"], options["dead_letters"]) == (90 * 86400.0, True)
    assert json.loads(outlast("prune", "--older-than", "1", "--json").output) == {"runs": 0, "kept": 3, "keys": 0}


def test_what_is_stranded_is_listed_with_the_reason(ports):
    """A lane without workers says how much waits in it; an empty list says so."""
    done = outlast("stranded")
    assert "night  import v2  1000+  no worker has import v2" in done.output
    assert json.loads(outlast("stranded", "--json").output)["stranded"][0]["runs"] == {"number": 1000, "has_more": True}
    ports.stranded = ()
    assert outlast("stranded").output == "nothing is stranded\n"


def test_every_lane_is_listed_if_asked_for(ports):
    """What each version still has to do, and whether anybody does it."""
    done = outlast("stranded", "--all")
    assert "night  import v2  1000+    0        7        none; paused since 2026-01-01 00:00:00Z" in done.output
    assert json.loads(outlast("stranded", "--all", "--json").output)["lanes"][0]["waiting"]["number"] == 7


def test_workers_show_how_they_ended(ports):
    """A worker that was found dead is listed as dead."""
    done = outlast("workers")
    assert "dead" in done.output
    assert "import v2" in done.output
    assert json.loads(outlast("workers", "--json").output)["workers"][0]["end"] == "dead"


def test_migrate_says_what_it_applied(ports):
    """Migrations are named, and `--print` changes nothing."""
    assert "applied 0001_native" in outlast("migrate").output
    assert json.loads(outlast("migrate", "--json").output) == {"applied": ["0001_native"]}
    ports.calls.clear()
    assert outlast("migrate", "--print").output == "create ...\n"
    assert ports.calls == [("closed",)]


def test_enqueue_passes_plain_json_and_options(ports):
    """The input is parsed, and key, delay, queue, priority and tags reach the engine."""
    done = outlast("enqueue", "import", '{"a": [1]}', "--version", "2", "--key", "k", "--delay", "5m", "--queue", "q", "--priority", "-3", "--tag", "t")
    assert done.exit_code == 0, done.output
    assert done.output == "r1\n"
    options = {"idempotency_key": "k", "delay": 300.0, "queue": "q", "priority": -3, "tags": ("t",)}
    assert ports.calls[0] == ("enqueue", "import", 2, {"a": [1]}, options)


def test_enqueue_without_input_gives_none(ports):
    """A task without input is enqueued without one."""
    outlast("enqueue", "import")
    assert ports.calls[0][:3] == ("enqueue", "import", 1)
    assert len(ports.calls[0]) == 4


def test_enqueue_reads_standard_input(ports):
    """`-` as the input reads it from standard input."""
    outlast("enqueue", "import", "-", input='"text"')
    assert ports.calls[0][3] == "text"


def test_enqueue_waits_for_the_result(ports):
    """`--wait` prints what the run returned."""
    done = outlast("enqueue", "import", "--wait", "60s")
    assert done.exit_code == 0, done.output
    assert done.output == "42\n"
    assert ("result", 60.0, {}) in ports.calls


@pytest.mark.parametrize("error", [RunFailedError("r1", Failure("x.Y", "broken")), TimeoutError()])
def test_enqueue_fails_if_the_run_does_not_succeed(ports, error):
    """A run that fails, or is not over in time, is exit code 1 with a message."""
    ports.result_error = error
    ports.run = a_run(status=RunStatus.FAILED)
    done = outlast("enqueue", "import", "--wait", "1")
    assert done.exit_code == 1
    assert "r1" in done.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RunNotFoundError("there is no run r1"), 1),
        (UnavailableError("the database did not answer"), 1),
        (SchemaError("run `outlast migrate`"), 1),
        (IdempotencyConflictError("import", "k", "r0"), 2),
    ],
)
def test_an_error_is_a_message_and_a_code(ports, error, code):
    """What the library raises is shown as its message, without a traceback."""
    ports.error = error
    done = outlast("show", "r1")
    assert done.exit_code == code
    assert str(error) in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["enqueue", "import", "{no json", "--app", "app_of_test:engine"], "quotes"),
        (["enqueue", "import", "--delay", "soon", "--app", "app_of_test:engine"], "1h30m"),
        (["runs", "--app", "app_of_test"], "module:engine"),
        (["runs", "--app", "no_such_module_here:engine"], "folder"),
        (["runs", "--app", "app_of_test:no_engine"], "connect()"),
        (["runs", "--app", "json:dumps.__doc__"], "connect()"),
        (["runs", "--status", "finished"], "succeeded"),
        (["prune", "--app", "app_of_test:engine"], "--older-than"),
        (["prune", "--older-than", "long", "--app", "app_of_test:engine"], "1h30m"),
        (["worker"], "--app"),
        (["worker", "--app", "app_of_test:engine", "--queues", ","], "commas"),
        (["demo", "--source", "/no/such/folder"], "does not exist"),
        (["nonsense"], "nonsense"),
    ],
)
def test_wrong_use_is_code_2_with_the_remedy(ports, arguments, remedy):
    """Whoever calls a command wrongly is told what to write, with exit code 2 and no traceback."""
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2, done.output
    assert remedy in done.output
    assert "Traceback" not in done.output


def test_a_module_that_fails_by_itself_keeps_its_traceback(tmp_path, monkeypatch):
    """An application whose own import is broken is not reported as a module that is not there."""
    (tmp_path / "app_with_broken_import.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["runs", "--app", "app_with_broken_import:engine"])
    assert isinstance(done.exception, ModuleNotFoundError)
    assert done.exception.name == "no_such_module_anywhere"


def test_tasks_of_the_application_check_the_input(ports):
    """With --app the input has the task's own type, and a task that is not there is named with those that are."""
    ports.tasks = (SimpleNamespace(name="import", version=2),)
    done = outlast("enqueue", "import", "1", "--version", "3")
    assert done.exit_code == 2
    assert "import v2" in done.output
