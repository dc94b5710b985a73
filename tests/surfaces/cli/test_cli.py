"""The command line: every form of every command, one-line errors, exit codes that tell them apart."""

import io
import itertools
import json
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from perdure import __version__
from perdure.engine.clock import SystemClock
from perdure.model.nouns import replace
from perdure.stores.migrations import migrations
from perdure.stores.sqlite.schema import PACKAGE
from perdure.surfaces.cli.options import _STORE, with_store
from perdure.surfaces.cli.root import cli, main
from tests.stores.kit import Place, attempt_of, failure, retry, success

APP = """
import perdure

app = perdure.App("sqlite:///work.db")


@app.stage
def one(item):
    return item


app.pipeline("p", one, queue="q", category="c")
nothing = perdure.App("sqlite:///work.db")
not_an_app = 5
"""

_modules = itertools.count(1)


@dataclass(frozen=True)
class Said:
    """What a command has said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Shell:
    """The command, called as its entry point is, in a folder of its own."""

    def __init__(self, folder: Path, monkeypatch, capsys) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.module = f"work_{next(_modules)}"
        (folder / f"{self.module}.py").write_text(APP)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Said:
        self._monkeypatch.setattr(sys, "argv", ["perdure", *arguments])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = self._capsys.readouterr()
        assert "Traceback" not in out + err
        return Said(code, out, err)

    def enqueue(self, *arguments: str, stdin: bytes = b"") -> Said:
        return self("enqueue", f"{self.module}:p", *arguments, stdin=stdin)

    def worked(self) -> Place:
        """The same store, for a worker played by the test."""
        return Place(str(self.folder / "work.db"), clock=SystemClock(), stages=("one",))


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PERDURE_STORE", "sqlite:///work.db")
    shell = Shell(tmp_path, monkeypatch, capsys)
    yield shell
    loaded = sys.modules.pop(shell.module, None)
    if loaded is not None:
        loaded.app.close()


def complains(said: Said, code: int, *words: str) -> None:
    """One line on standard error, nothing on standard output, and this exit code."""
    assert said.code == code, said
    assert said.out == ""
    assert len(said.err.splitlines()) == 1, said.err
    assert said.err.startswith("perdure: ")
    assert all(word in said.err for word in words), said.err


# -- help --------------------------------------------------------------------------------


def paths(group: click.Group, *before: str):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*before, name), command
        if isinstance(command, click.Group):
            yield from paths(command, *before, name)


COMMANDS = {" ".join(path): command for path, command in paths(cli)}


def test_the_commands_are_these():
    shown = {name for name, command in COMMANDS.items() if not command.hidden}
    assert shown == {
        "audit",
        "captures",
        "captures list",
        "captures show",
        "config",
        "config show",
        "db",
        "db status",
        "db upgrade",
        "dead",
        "dead continue",
        "dead discard",
        "dead export",
        "dead groups",
        "dead history",
        "dead list",
        "dead redrive",
        "dead retry",
        "dead show",
        "dead stop",
        "demo",
        "doctor",
        "enqueue",
        "gates",
        "gates hold",
        "gates list",
        "gates probe",
        "gates release",
        "gates show",
        "jobs",
        "jobs cancel",
        "jobs list",
        "jobs retry",
        "jobs run-now",
        "jobs show",
        "metrics",
        "metrics alerts",
        "metrics show",
        "policy",
        "policy check",
        "policy explain",
        "policy list",
        "policy show",
        "queues",
        "queues list",
        "queues pause",
        "queues resume",
        "run",
        "runs",
        "runs cancel",
        "runs list",
        "runs pause",
        "runs report",
        "runs results",
        "runs resume",
        "runs seal",
        "runs show",
        "schedules",
        "schedules list",
        "serve",
        "simulate",
        "token",
        "token create",
        "token list",
        "token revoke",
        "worker",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(shell, name):
    said = shell(*name.split(), "--help")
    assert said.code == 0
    assert said.out.startswith(f"Usage: perdure {name} ")
    words = (COMMANDS[name].help or "").split()[:6]
    assert " ".join(words) in " ".join(said.out.split())


@pytest.mark.parametrize("name", [name for name, one in COMMANDS.items() if not one.hidden])
def test_every_option_is_explained(name):
    options = [one for one in COMMANDS[name].params if isinstance(one, click.Option)]
    assert [one.name for one in options if not (one.help or one.hidden)] == []


WITHOUT_STORE = {
    "demo",
    "simulate",
    "metrics alerts",
    "policy check",
    "policy explain",
    "policy list",
    "policy show",
}


def test_every_command_that_opens_a_store_can_be_told_which():
    shown = {name: one for name, one in COMMANDS.items() if not one.hidden}
    leaves = {name: one for name, one in shown.items() if not isinstance(one, click.Group)}
    told = {name for name, one in leaves.items() if any("--store" in p.opts for p in one.params)}
    assert set(leaves) - told == WITHOUT_STORE


def test_enqueue_takes_a_module_and_a_store_as_run_does(shell, monkeypatch):
    app = APP.replace('"sqlite:///work.db"', "").replace("nothing = perdure.App()", "")
    (shell.folder / f"{shell.module}.py").write_text(app)
    said = shell("enqueue", shell.module, "1", "--store", "sqlite:///other.db")
    assert (said.code, said.err) == (0, "")
    (job,) = shell("jobs", "list", "--json", "--store", "sqlite:///other.db").json
    assert job["id"] == said.lines[0]


def test_a_store_beside_that_of_the_app_is_refused(shell):
    said = shell.enqueue("1", "--store", "sqlite:///other.db")
    complains(
        said, 2, "keeps its jobs in sqlite:///", "work.db, by its own word; leave --store out"
    )


def test_a_worker_refuses_a_store_beside_that_of_the_app(shell):
    said = shell("worker", f"{shell.module}:app", "--store", "sqlite:///other.db")
    complains(said, 2, "by its own word; leave --store out, or let the app name no store")
    assert not (shell.folder / "other.db").exists()


def test_the_version_is_told(shell):
    assert shell("--version").out.startswith("perdure, version ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["job", "list"], "No such command 'job'; did you mean: perdure jobs"),
        (["gate", "show"], "No such command 'gate'; did you mean: perdure gates"),
        (["jobs", "list", "--state", "limbo"], "'limbo' is not one of"),
        (["jobs", "list", "--limit", "0"], "0 is not in the range"),
        (["jobs", "list", "--limit", "x"], "'x' is not a valid integer"),
        (["jobs", "list", "--before", "9" * 30], "is not in the range"),
        (["jobs", "show"], "Missing argument 'JOB'"),
        (["enqueue"], "Missing argument"),
        (["audit", "--what"], "No such option"),
        (["--store", "x", "jobs", "list"], "after their command: perdure COMMAND --store …"),
    ],
)
def test_a_wrong_call_is_explained_with_exit_code_two(shell, arguments, words):
    said = shell(*arguments)
    assert (said.code, said.out) == (2, "")
    assert words in said.err


# -- db ----------------------------------------------------------------------------------


STEPS = [one.label for one in migrations(PACKAGE)]
VERSION = migrations(PACKAGE)[-1].number


def test_the_schema_is_upgraded_once(shell):
    assert shell("db", "upgrade").out == f"sqlite:///work.db: applied {', '.join(STEPS)}\n"
    assert shell("db", "upgrade").out == "sqlite:///work.db: nothing to do\n"
    current = f"sqlite:///work.db: schema {VERSION} of {VERSION}, up to date\n"
    assert shell("db", "status").out == current


def test_asking_for_the_schema_of_a_mistyped_path_makes_no_file(shell):
    complains(shell("db", "status"), 11, "does not exist")
    assert not Path("work.db").exists()


def test_the_schema_is_told_in_json(shell):
    Path("work.db").touch()
    assert "no schema yet; run: perdure db upgrade" in shell("db", "status").out
    before = shell("db", "status", "--json").json
    assert (before["present"], before["version"], before["pending"]) == (False, 0, STEPS)
    applied = {"url": "sqlite:///work.db", "applied": STEPS}
    assert shell("db", "upgrade", "--json").json == applied
    assert shell("db", "upgrade", "--json").json["applied"] == []
    assert shell("db", "status", "--json").json["present"] is True


def test_a_store_is_named_by_option_before_the_environment(shell):
    shell("db", "upgrade", "--store", "sqlite:///other.db")
    assert (shell.folder / "other.db").exists()
    assert not (shell.folder / "work.db").exists()


# -- enqueue -----------------------------------------------------------------------------

FORMS = [
    ('{"n": 1}', {"n": 1}),
    ("[1, 2]", [1, 2]),
    ("5", 5),
    ("-0.5", -0.5),
    ('"quoted"', "quoted"),
    ("null", None),
    ("true", True),
    ("plain text", "plain text"),
    ("naïve 🎉", "naïve 🎉"),
    ("report.pdf", "report.pdf"),
    ("NaN", "NaN"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "value"), FORMS)
def test_an_item_is_json_or_plain_text(shell, text, value):
    said = shell.enqueue("--", text)
    assert said.code == 0
    assert shell("jobs", "show", said.out.strip(), "--json").json["payload"] == value


def test_several_items_become_several_jobs_in_order(shell):
    said = shell.enqueue("1", "two", "[3]")
    assert len(said.lines) == 3
    listed = shell("jobs", "list", "--json").json
    assert [job["payload"] for job in listed] == [[3], "two", 1]
    assert [job["id"] for job in listed] == said.lines[::-1]


def test_items_may_be_given_by_the_name_of_the_app_too(shell):
    assert shell("enqueue", f"{shell.module}:app:p", "1").code == 0


def test_items_come_from_a_file_and_blank_lines_are_none(shell):
    (shell.folder / "items.jsonl").write_text('{"n":1}\n\n{"n":2}\n   \n3')
    assert len(shell.enqueue("--from", "items.jsonl").lines) == 3
    assert [job["payload"] for job in shell("jobs", "list", "--json").json] == [
        3,
        {"n": 2},
        {"n": 1},
    ]


def test_items_come_from_standard_input(shell):
    assert len(shell.enqueue("--from", "-", stdin=b"1\n2\n").lines) == 2


def test_many_items_are_told_in_one_line(shell):
    said = shell.enqueue("--from", "-", stdin=b"1\n" * 30)
    (line,) = said.lines
    assert line.startswith("enqueued 30 items, ")


def test_a_bad_line_is_named_and_keeps_everything_out(shell):
    said = shell.enqueue("0", "--from", "-", stdin=b'{"n":1}\n{"n":\n{"n":3}\n')
    complains(said, 2, "standard input line 2 is no JSON value", "; nothing was enqueued")
    complains(shell("jobs", "list"), 11, "does not exist")


def test_a_line_that_is_not_utf_8_has_one_remedy(shell):
    said = shell.enqueue("--from", "-", stdin='"Käse"\n'.encode("latin-1"))
    complains(
        said, 2, "standard input line 1 is not UTF-8; ", "iconv -f ENCODING -t UTF-8; nothing"
    )
    assert "mend it" not in said.err


def test_a_bad_line_after_many_good_ones_keeps_everything_out(shell):
    lines = b'{"n":1}\n' * 10_500 + b"{\n"
    said = shell.enqueue("--from", "-", stdin=lines)
    complains(said, 2, "standard input line 10501 is no JSON value")
    complains(shell("audit"), 11, "does not exist")


def test_looking_leaves_somebody_elses_database_as_it_is(shell):
    with closing(sqlite3.connect("foreign.db")) as foreign:
        foreign.execute("CREATE TABLE t (x)")
        foreign.commit()
    before = Path("foreign.db").read_bytes()
    for command in (("jobs", "list"), ("audit",), ("jobs", "show", "1")):
        complains(shell(*command, "--store", "sqlite:///foreign.db"), 11, "holds no schema")
    said = shell("db", "status", "--store", "sqlite:///foreign.db").out
    assert "no schema yet; run: perdure db upgrade --store sqlite:///foreign.db" in said
    assert Path("foreign.db").read_bytes() == before
    assert sorted(path.name for path in Path().glob("foreign*")) == ["foreign.db"]


def test_the_same_key_twice_is_the_same_job(shell):
    first = shell.enqueue("1", "--key", "k").lines[0]
    again = shell.enqueue("2", "--key", "k")
    assert (again.lines, again.err) == ([first], "its key was taken: this is the same job\n")
    assert shell.enqueue("3", "--key", "k", "--json").json == [{"id": first, "created": False}]
    assert shell("jobs", "show", first, "--json").json["payload"] == 1


def test_options_of_a_job_are_kept(shell):
    (made,) = shell.enqueue(
        "1", "--owner", "ann", "--priority", "7", "--deadline", "60", "--key", "k", "--json"
    ).json
    job = shell("jobs", "show", made["id"], "--json").json
    assert (job["owner"], job["priority"], job["key"]) == ("ann", 7, "k")
    assert made["created"] is True
    assert job["deadline_at"] > job["enqueued_at"]
    assert (job["request_id"], job["deadline_s"]) == (job["id"], 60.0)


def test_items_keep_the_request_id_and_the_place_in_line_that_they_are_given(shell):
    given = ["--request-id", "req-7", "--ordered-at", "2020-01-01T00:00:00+01:00", "--json"]
    made = [*shell.enqueue("1", *given).json, *shell.enqueue("2", "3", *given).json]
    for one in made:
        job = shell("jobs", "show", one["id"], "--json").json
        assert (job["request_id"], job["ordered_at"]) == ("req-7", "2019-12-31T23:00:00Z")
    told = shell("jobs", "show", made[0]["id"]).out
    assert ", request req-7, in line since 2019-12-31 23:00:00.000Z\n" in told


def test_items_begin_not_before_their_time(shell):
    late = ["--run-at", "2090-01-01T00:00:00+01:00", "--json"]
    for one in (*shell.enqueue("1", *late).json, *shell.enqueue("2", "3", *late).json):
        job = shell("jobs", "show", one["id"], "--json").json
        assert (job["shown_state"], job["due_at"]) == ("scheduled", "2089-12-31T23:00:00Z")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no items; pass them as arguments or with --from FILE"),
        (["1", "2", "--key", "k"], "--key k goes with exactly one item, and you gave 2 items"),
        (["1", "2", "--deadline", "5"], "--deadline 5 goes with exactly one item"),
        (['{"n": 1'], "begins like JSON and is none"),
        (["[1,"], "mend it"),
        (['"a\\u0000b"'], "holds a NUL character"),
        (["123456789012345678901234567890"], "beyond 64 bits"),
        (["1", "--owner", " ann"], "owner name"),
        (["1", "--key", ""], "key ''"),
        (["1", "--priority", "9999999"], "priority"),
        (["1", "--deadline", "-1"], "deadline_s"),
        (["1", "--request-id", "a b"], "request_id 'a b' must have 1 to 128 visible ASCII"),
        (["1", "--ordered-at", "2026-01-01"], "'2026-01-01' is no moment with a time zone"),
        (["1", "2", "--ordered-at", "x"], "write it as in 2026-11-16T09:30:00Z"),
        (["1", "--run-at", "2026-01-01"], "--run-at '2026-01-01' is no moment with a time zone"),
        (
            ["1", "--if-failed", "retry"],
            "--if-failed retry says what becomes of the job with a key",
        ),
        (["\udcff"], "half of a surrogate pair"),
    ],
)
def test_an_item_that_cannot_be_accepted_is_refused_in_one_line(shell, arguments, words):
    complains(shell.enqueue(*arguments), 2, words)
    assert shell("jobs", "list").out == "no jobs\n" or not (shell.folder / "work.db").exists()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            "{module}:x",
            "has no app or pipeline 'x'; it has the apps: app, nothing; the pipelines: p",
        ),
        ("{module}:nothing:x", "has no pipeline 'x'; it has: none"),
        ("nowhere:p", "no module 'nowhere' here"),
        ("nowhere.at.all:p", "no module 'nowhere.at.all' here"),
        ("{module}:not_an_app:p", ":not_an_app is no perdure.App; it has the apps: app, nothing"),
        ("{module}:missing:p", ":missing is no perdure.App; it has the apps"),
        ("p", "no module 'p' here; write module:variable"),
        (":p", "names no module"),
        ("::p", "names no module"),
        (".x:p", "names no module"),
        ("work.py:p", "work.py"),
    ],
)
def test_an_app_or_pipeline_that_is_not_there_is_named(shell, target, words):
    said = shell("enqueue", target.format(module=shell.module), "1")
    complains(said, 2, words)


# -- jobs --------------------------------------------------------------------------------


@pytest.fixture
def history(shell):
    """Jobs 1 done, 2 failed, 3 waiting for a retry, 4 new; their ids by number."""
    ids = dict(enumerate(shell.enqueue('{"n":1}', "2", "3", "4").lines, start=1))
    place = shell.worked()
    worker = place.hire()
    one, two, three = place.take(worker, 3)
    again = replace(
        retry(three, worker, delay_s=30.0),
        attempt=attempt_of(
            three,
            "retrying",
            worker,
            counted="failures",
            kind="network",
            message="connection reset",
            why_json='{"text":"retry in 30 s: network"}',
            evidence_json='{"names":["builtins.ConnectionResetError"]}',
        ),
    )
    place.settle(
        replace(success(one, worker, result_json='{"total":3}'), label="passed"),
        failure(two, worker),
        again,
        by=worker,
    )
    place.close()
    return ids


def test_jobs_are_listed_newest_first(shell, history):
    heads, *lines = shell("jobs", "list").lines
    assert heads.split() == ["no", "job", "state", "stage", "starts", "error", "enqueued", "key"]
    assert len({line.index("p/") for line in lines} | {heads.index("stage")}) == 1
    assert [line.split()[:3] for line in lines] == [
        ["4", history[4], "queued"],
        ["3", history[3], "retrying"],
        ["2", history[2], "failed"],
        ["1", history[1], "succeeded"],
    ]
    assert re.search(r"p/one +1  network +\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  -$", lines[1])


def test_jobs_are_listed_by_state_and_pipeline_and_page(shell, history):
    def numbers(*arguments: str) -> list[int]:
        return [job["no"] for job in shell("jobs", "list", "--json", *arguments).json]

    assert numbers("--state", "failed", "--state", "succeeded") == [2, 1]
    assert numbers("--pipeline", "p") == [4, 3, 2, 1]
    unknown = shell("jobs", "list", "--pipeline", "x")
    complains(unknown, 2, "this store has no pipeline 'x'; one of: p")
    assert numbers("--limit", "2") == [4, 3]
    assert numbers("--limit", "2", "--before", "3") == [2, 1]
    assert shell("jobs", "list", "--limit", "2").lines[-1] == "more: --before 3"


def test_jobs_are_listed_by_the_states_that_are_shown(shell, history):
    shown = {line.split()[0]: line.split()[2] for line in shell("jobs", "list").lines[1:]}
    for state in ("succeeded", "failed", "retrying"):
        found = shell("jobs", "list", "--state", state).lines[1:]
        assert [line.split()[0] for line in found] == [no for no in shown if shown[no] == state]
    assert shell("jobs", "list", "--state", "scheduled").lines == ["no jobs"]
    assert len(shell("jobs", "list", "--state", "queued").lines) == 1 + 2
    both = shell("jobs", "list", "--state", "retrying", "--state", "failed")
    complains(both, 2, "state 'retrying' is a view of queued and is asked for alone")


FILTERS = [
    (("--label", "passed"), [1]),
    (("--label", "PASSED"), []),
    (("--stage", "one"), [4, 3, 2, 1]),
    (("--kind", "network"), [3]),
    (("--kind", "timeout"), []),
    (("--stage", "one", "--kind", "network", "--state", "retrying"), [3]),
    (("--label", "passed", "--state", "failed"), []),
]


@pytest.mark.parametrize(("words", "numbers"), FILTERS, ids=[" ".join(one) for one, _ in FILTERS])
def test_jobs_are_listed_by_label_stage_and_kind(shell, history, words, numbers):
    plain = shell("jobs", "list", *words).lines
    assert [int(line.split()[0]) for line in plain[1:]] == numbers
    assert numbers or plain[0].startswith("no jobs with ")
    assert [job["no"] for job in shell("jobs", "list", "--json", *words).json] == numbers


def test_jobs_are_not_listed_by_a_stage_or_kind_that_does_not_exist(shell, history):
    complains(shell("jobs", "list", "--stage", "on"), 2, "no stage 'on'", "did you mean 'one'")
    complains(shell("jobs", "list", "--kind", "netwerk"), 2, "did you mean 'network'")


def test_a_job_that_has_succeeded_is_not_retried_and_what_to_do_instead_is_told(shell, history):
    refused = shell("jobs", "retry", history[1])
    complains(
        refused,
        2,
        f"job {history[1]} is succeeded; only a failed job can be retried; "
        "to have it done once more, enqueue its item again",
    )
    assert "another key" not in refused.err
    keyed = shell.enqueue("5", "--key", "k").lines[0]
    shell("jobs", "cancel", keyed)
    complains(shell("jobs", "retry", keyed), 2, "is cancelled;", "again, under another key")


def test_a_job_is_found_by_its_key(shell):
    (id,) = shell.enqueue("1", "--key", "order-1").lines
    shell.enqueue("2", "--key", "order-2")
    anns = shell.enqueue("3", "--key", "order-1", "--owner", "ann").lines[0]
    assert shell("jobs", "show", "order-1", "--json").json["id"] == id
    assert shell("jobs", "show", "order-1").lines[1].endswith(", key order-1")
    _, line = shell("jobs", "list", "--key", "order-1").lines
    assert id in line
    _, line = shell("jobs", "list", "--key", "order-1", "--owner", "ann").lines
    assert anns in line
    none = "no jobs with key 'order-9'; another owner's: --owner"
    assert shell("jobs", "list", "--key", "order-9").lines == [none]
    complains(shell("jobs", "list", "--key", "x" * 5000), 2, "printable characters")
    complains(shell("jobs", "show", "order-9"), 2, "no job 'order-9'", "--key … --owner …")


def test_a_key_that_several_jobs_have_names_them_all(shell):
    more = APP + 'app.pipeline("r", one)\n'
    (shell.folder / f"{shell.module}.py").write_text(more)
    ids = [shell("enqueue", f"{shell.module}:{name}", "1", "--key", "k").lines[0] for name in "pr"]
    complains(shell("jobs", "show", "k"), 2, f"by its id: {ids[1]}, {ids[0]}")
    assert shell("jobs", "show", ids[0]).code == 0


def test_what_people_did_to_a_job_is_told_with_who_and_why(shell, history):
    shell("jobs", "run-now", history[3], "--by", "ann", "--reason", "in a hurry")
    shell("jobs", "cancel", history[3], "--by", "bob")
    *_, ran, cancelled, item, _ = shell("jobs", "show", history[3]).lines
    assert ran.endswith("Z  run job now by ann: in a hurry")
    assert cancelled.endswith("Z  cancel job by bob")
    assert item == "  item 3"
    told = shell("jobs", "show", history[3], "--json").json["deeds"]
    assert [(one["verb"], one["by_whom"]) for one in told] == [
        ("run job now", "ann"),
        ("cancel job", "bob"),
    ]


def test_a_listing_in_json_holds_real_values(shell, history):
    (job,) = shell("jobs", "list", "--json", "--state", "succeeded").json
    assert (job["payload"], job["result"], job["label"]) == ({"n": 1}, {"total": 3}, "passed")
    assert (job["state"], job["shown_state"]) == ("succeeded", "succeeded")
    assert not [name for name in job if name.endswith("_json")]


def test_the_history_of_a_job_is_told_in_words(shell, history):
    lines = shell("jobs", "show", history[3]).lines
    assert lines[0] == f"job {history[3]} (number 3) of pipeline p: retrying"
    assert "one attempt 1: retrying after 0.50 s on worker 1" in lines[2]
    assert lines[3:5] == [
        "      saw: ConnectionResetError: connection reset",
        "      retry in 30 s: network  [policy plain/1]",
    ]
    assert lines[5] == "  item 3"
    assert lines[6].startswith("  waits for stage one, due ")


def test_the_end_of_a_job_is_told_in_words(shell, history):
    done = shell("jobs", "show", history[1]).out
    assert "succeeded, label passed" in done
    assert '  result {"total":3}' in done
    assert "failed (fatal)" in shell("jobs", "show", history[2]).lines[0]


def test_a_job_that_runs_is_told_with_its_worker(shell, history):
    place = shell.worked()
    (claim,) = place.take(place.hire())
    place.close()
    lines = shell("jobs", "show", claim.id).lines
    assert lines[0].endswith("of pipeline p: processing")
    assert lines[-1] == "  runs stage one on worker 2"


def test_a_job_is_found_by_its_number_too(shell, history):
    assert shell("jobs", "show", "2", "--json").json["id"] == history[2]


def test_a_history_in_json_holds_real_values(shell, history):
    job = shell("jobs", "show", history[3], "--json").json
    (attempt,) = job["attempts"]
    assert attempt["why"] == {"text": "retry in 30 s: network"}
    assert attempt["evidence"] == {"names": ["builtins.ConnectionResetError"]}
    assert (attempt["status"], attempt["kind"]) == ("retrying", "network")


@pytest.mark.parametrize("id", ["nobody", "99", "0", "9" * 30, "9" * 5000, "٣"])
def test_a_job_that_is_not_there_is_named(shell, history, id):
    complains(shell("jobs", "show", id), 2, f"no job {id!r} in this store; see: perdure jobs list")


# -- audit -------------------------------------------------------------------------------


def test_an_audit_of_a_sound_store_is_clean(shell, history):
    said = shell("audit")
    assert said.code == 0
    books, covered, verdict = said.lines
    assert books == (
        "accepted 4 = queued 2 + processing 0 + succeeded 1 + failed 1 + cancelled 0 + pruned 0"
    )
    assert verdict == "clean"
    found = shell("audit", "--json").json
    checks, tables = len(found["checks"]), len(found["tables"])
    assert covered == f"{checks} checks over {tables} tables, of 4 jobs in store sqlite:///work.db"
    assert (found["clean"], found["findings"], found["books"]["accepted"]) == (True, [], 4)


def test_an_audit_of_a_damaged_store_names_the_damage_and_exits_one(shell, history):
    place = shell.worked()
    place.damage("DELETE FROM perdure_attempts WHERE job = 1")
    place.close()
    said = shell("audit")
    assert said.code == 1
    assert f"success_without_attempt: {history[1]} succeeded without" in said.out
    assert said.lines[-1].endswith("findings")
    assert shell("audit", "--json").json["clean"] is False


def test_books_that_do_not_balance_are_no_clean_audit(shell, history):
    place = shell.worked()
    place.damage("UPDATE perdure_flows SET created = created + 5")
    place.close()
    said = shell("audit")
    assert said.code == 1
    assert "DOES NOT BALANCE" in said.out


# -- settings ----------------------------------------------------------------------------


def test_a_variable_that_is_almost_a_setting_is_named_with_the_one_that_is_meant(
    shell, monkeypatch
):
    monkeypatch.setenv("PERDURE_STORE_URI", "sqlite:///other.db")
    monkeypatch.setenv("PERDURE_SEED", "7")
    shell.enqueue("1")
    said = shell("jobs", "list")
    assert said.code == 0
    assert said.err == (
        "perdure: warning: PERDURE_STORE_URI sets nothing; did you mean PERDURE_STORE?\n"
    )
    with started(shell.folder, "worker", "nowhere:app", stdout=subprocess.PIPE) as process:
        _, err = process.communicate(timeout=60)
    assert err.count("PERDURE_STORE_URI") == 1


# -- commands in messages ----------------------------------------------------------------


def test_a_command_in_a_message_names_the_store_that_was_typed(shell, history):
    given = ("--store", "sqlite:///./work.db")
    said = shell("jobs", "show", "nobody", *given)
    complains(said, 2, "see: perdure jobs list --store sqlite:///./work.db; by the key")
    shell("queues", "pause", "q", *given)
    said = shell("jobs", "run-now", history[4], "--dry-run", *given)
    complains(said, 2, "(to release it: perdure queues resume q --store sqlite:///./work.db)")
    assert "--store" not in shell("jobs", "show", "nobody").err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("see: perdure runs list", "see: perdure runs list --store s"),
        ("run: perdure db upgrade, and so on", "run: perdure db upgrade --store s, and so on"),
        ("perdure gates release 'a b' --reason … and more", "perdure gates release 'a b' --reason … --store s and more"),
        ("see: perdure jobs show 7. Or not.", "see: perdure jobs show 7 --store s. Or not."),
        ("(perdure dead redrive --help)", "(perdure dead redrive --help)"),
        ("perdure db upgrade --store t", "perdure db upgrade --store t"),
        ("perdure worker APP", "perdure worker APP"),
    ],
)  # fmt: skip
def test_commands_are_found_in_sentences(text, told):
    context = click.Context(cli)
    with context:
        context.meta[_STORE] = "s"
        assert with_store(text) == told


# -- stores that are not as they should be -----------------------------------------------

READING = [["jobs", "list"], ["jobs", "show", "x"], ["audit"]]
EVERY = [*READING, ["db", "status"], ["db", "upgrade"]]


@pytest.mark.parametrize("command", READING)
def test_a_store_that_does_not_exist_is_not_made_by_looking(shell, command):
    complains(shell(*command), 11, "store 'sqlite:///work.db' does not exist")
    assert not (shell.folder / "work.db").exists()


@pytest.mark.parametrize("command", EVERY)
def test_a_file_that_is_no_store_is_refused(shell, command):
    (shell.folder / "work.db").write_bytes(b"not a database, not at all" * 1000)
    complains(shell(*command), 15, "it is not an SQLite database")


@pytest.mark.parametrize("command", EVERY)
def test_a_url_of_no_store_is_refused(shell, command):
    complains(shell(*command, "--store", "redis://x"), 2, "is not a URL of a store")


@pytest.mark.parametrize("command", [*READING, ["db", "upgrade"]])
def test_a_store_of_a_newer_version_is_refused(shell, command):
    place = shell.worked()
    place.damage("INSERT INTO perdure_migrations VALUES (99, 'future', 'x', 99, 0)")
    place.close()
    complains(shell(*command), 16, "upgrade the package")


def test_a_folder_that_does_not_exist_is_named(shell):
    said = shell("db", "upgrade", "--store", "sqlite:////nowhere/at/all/work.db")
    complains(said, 11, "/nowhere/at/all/work.db")


# -- worker ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--concurrency", "0"], "concurrency is 0; it must be at least 1"),
        (["--processes", "0"], "processes is 0; it must be at least 1"),
        (["--processes", "129"], "processes is 129; it must be at most 128"),
        (["--lease-ttl", "0.1"], "lease_ttl_s is 0.1"),
        (["--lease-ttl", "nan"], "lease_ttl_s is nan"),
        (["--grace", "-1"], "grace_s is -1"),
        (["--log-level", "chatty"], "log_level is 'chatty'; one of: DEBUG, INFO"),
        (["--lease-ttl", "1", "--poll", "0.9"], "poll_s is 0.9 and lease_ttl_s is 1"),
    ],
)
def test_a_worker_with_a_wrong_setting_does_not_start(shell, options, words):
    complains(shell("worker", shell.module, *options), 2, words)


PLACES = """
app.pipeline("r", one, queue="slow", category="c")
app.pipeline("s", one, queue="q", category="d")
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--queue", "x"], "has no queue 'x'; it has: q, slow"),
        (["--queue", "q", "--queue", "x"], "has no queue 'x'"),
        (["--category", "x"], "has no category 'x'; it has: c, d"),
        (["--queue", "slow", "--category", "d"], "it has: q/c, q/d, slow/c"),
    ],
)
def test_a_worker_for_nothing_that_the_app_has_does_not_start(shell, options, words):
    (shell.folder / f"{shell.module}.py").write_text(APP + PLACES)
    complains(shell("worker", shell.module, *options), 2, words)


# -- the real thing ----------------------------------------------------------------------


def started(folder: Path, *arguments: str, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "perdure.surfaces.cli", *arguments],
        cwd=folder,
        text=True,
        stderr=subprocess.PIPE,
        **{"stdin": subprocess.DEVNULL, **options},
    )


def test_the_installed_command_says_the_same(shell):
    with started(shell.folder, "jobs", "list", stdout=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (11, "")
    assert err.startswith("perdure: store 'sqlite:///work.db' does not exist")


def test_the_help_of_a_group_has_the_whole_sentence_of_each_command(shell):
    for words in ([], ["dead"], ["jobs"], ["runs"]):
        lines = shell(*words, "--help").lines
        told = lines[lines.index("Commands:") + 1 :]
        assert len(told) > 4
        assert told[-1].endswith(".")
        assert not [line for line in told if line.endswith("...")]


def test_the_version_is_told_before_anything_is_loaded(shell):
    asked = shell("--version")
    assert (asked.out, asked.code) == (f"perdure, version {__version__}\n", 0)
    code = (
        "import sys; sys.argv[1:] = ['--version']\n"
        "from perdure.surfaces.cli import main; main(); print('click' in sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout == f"{asked.out}False\n"


def test_help_may_be_asked_for_in_short(shell):
    with started(shell.folder, "jobs", "list", "-h", stdout=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("Usage: perdure jobs list [OPTIONS]")


def test_a_reader_that_has_seen_enough_is_no_error(shell):
    shell.enqueue("--from", "-", stdin=b"1\n" * 500)
    with started(shell.folder, "jobs", "list", "--limit", "500", stdout=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0


def test_an_interrupted_command_says_so(shell):
    (shell.folder / "slow.py").write_text(APP + "print('loaded', flush=True)\n")
    with started(
        shell.folder,
        "enqueue",
        "slow:p",
        "--from",
        "-",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == "loaded\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().split() == ["interrupted"]
        assert process.wait(60) == 130


def test_an_app_that_fails_while_it_is_loaded_is_the_apps_own_failure(shell):
    (shell.folder / "broken.py").write_text("import nowhere_at_all\n")
    with started(shell.folder, "enqueue", "broken:p", "1", stdout=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, len(err.splitlines())) == (2, "", 1)
    assert "ModuleNotFoundError at broken.py:1: No module named 'nowhere_at_all'" in err
