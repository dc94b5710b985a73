"""The verifier's commands: what they tell, what they do, what they end with."""

import json
import subprocess
import sys

import pytest
from examples.verifier import cli
from examples.verifier.runs import all_runs, reset
from examples.verifier.samples import make_save

from tests.examples.converter_kit import until
from tests.examples.verifier_kit import SEED, verifier_trial
from tests.house.tree import ROOT

# Of the companion document's table `runs`, but for game and category, which are names here, and bot_notified.
COLUMNS = {"run_id", "submitted_date", "status", "error_message", "retry_count", "next_retry_at"} | {
    "error_class", "created_at", "updated_at", "game", "category",
}  # fmt: skip


@pytest.fixture
def trial(tmp_path):
    with verifier_trial(tmp_path) as trial:
        yield trial


@pytest.fixture
def run(monkeypatch, capsys):
    """A command, typed: its status and what it says."""

    def typed(*words: str, answer: str | None = None) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["verifier", *words])
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: answer)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code, said.out + said.err

    return typed


@pytest.fixture(scope="module")
def settled(tmp_path_factory):
    """Two verdicts, a permanent error, one that waits and one that is new."""
    slow = {"initial_backoff": 3600}
    with verifier_trial(tmp_path_factory.mktemp("settled"), retry=slow) as trial:
        trial.submit("good", hours_ago=5)
        trial.submit("gems", "gems left", hours_ago=4)
        trial.submit("no save", "no save", hours_ago=3)
        trial.submit("waits", hours_ago=2)
        trial.order({"path": "/api/runs/waits", "status": 503})
        trial.discover()
        with trial.working():
            for one in ("good", "gems", "no save"):
                trial.job(one).wait()
            trial.until_status("waits", "error")
        trial.submit("new")
        trial.discover()
        yield trial


def lines(said: str) -> list[dict]:
    return [json.loads(line) for line in said.splitlines()]


def test_runs_are_listed_by_every_filter(settled, run):
    def ids(*words: str) -> set[str]:
        status, said = run("query", "list", "--json", *words)
        assert status == 0
        return {one["run_id"] for one in lines(said)}

    assert ids() == {"good", "gems", "no save", "waits", "new"}
    assert ids("--status", "passed", "--status", "failed") == {"good", "gems"}
    assert ids("--status", "error") == {"no save", "waits"}
    assert ids("--class", "final") == {"no save"}
    assert ids("--category", "all-gems") == {"gems"}
    assert ids("--game", "chess") == set()
    assert ids("--text", "503") == {"waits"}
    assert ids("--older-than", "1d") == set()
    assert ids("--older-than", "999999d") == set()
    assert ids("--older-than", "0s") == ids()
    assert ids("--class", "final", "--class", "retryable", "--text", "503") == {"waits"}
    assert len(ids("--limit", "2")) == 2
    assert "retryable, 1 retries, next try" in run("query", "list")[1]


def test_a_run_is_shown_with_its_history(settled, run):
    status, said = run("query", "show", "waits")
    assert status == 0
    assert "error_class     retryable" in said
    assert "retry in 3600 s" in said
    told = json.loads(run("query", "show", "good", "--json")[1])
    assert (told["status"], told["result"]["player"], told["retry_count"]) == (
        "passed",
        "player 3",
        0,
    )
    assert told.keys() >= COLUMNS
    assert told["created_at"] <= told["updated_at"]
    assert run("query", "show", "nobody") == (
        20,
        "error: no run 'nobody' was found yet; see: query list\n",
    )


def test_runs_are_counted_and_errors_grouped(settled, run):
    told = json.loads(run("query", "stats", "--json")[1])
    assert told["status"] == {
        "discovered": 1, "processing": 0, "passed": 1, "needs_review": 0, "failed": 1, "error": 2,
    }  # fmt: skip
    assert told["error_class"] == {"retryable": 1, "final": 1}
    assert told["errors"] == {"waiting": 1, "permanent": 1}
    assert told["category"] == {"burrow/any%": 4, "burrow/all-gems": 1}
    assert "status       passed" in run("query", "stats")[1]
    assert json.loads(run("query", "errors", "--json")[1]) == [
        {"class": "final", "variant": "game.bad_save", "runs": 1, "example": "no save"},
        {"class": "retryable", "variant": "api.network", "runs": 1, "example": "waits"},
    ]
    assert "api.network" not in run("query", "errors", "--class", "final")[1]


def test_the_queue_is_told_in_its_order(settled, run):
    assert [one["run_id"] for one in lines(run("query", "queue", "--json")[1])] == ["new", "waits"]


@pytest.mark.parametrize(
    ("sort", "status"), [("good", 0), ("unfinished", 1), ("perfect", 3), ("crash", 20)]
)
def test_a_save_is_verified_here_and_the_status_is_the_verdict(trial, run, tmp_path, sort, status):
    save = tmp_path / "my.save"
    save.write_text(make_save(sort, SEED))
    assert run("run", str(save))[0] == status
    trial.submit("r1", sort)
    assert run("run-src", "r1")[0] == status
    assert list(all_runs(trial.verifier)) == []


def raised(error: Exception):
    def call(*_: object) -> None:
        raise error

    return call


def test_technical_errors_end_with_20_and_a_line(trial, run, monkeypatch):
    assert run("run-src", "r9") == (
        20,
        "error: api.not_found: api/runs/r9 is answered with 404\n",
    )
    assert run("daemon", "--category", "burrow/any")[0] == 2
    assert run("query", "list", "--older-than", "soon")[0] == 2
    trial.submit("odd", link="http://[oops/files/x.save")
    said = "error: download.security_violation: http://[oops/files/x.save leads elsewhere\n"
    assert run("run-src", "odd") == (20, said)
    trial.submit("good")
    monkeypatch.setattr(cli, "TemporaryDirectory", raised(OSError(28, "No space left\non device")))
    assert run("run-src", "good") == (20, "error: OSError: [Errno 28] No space left on device\n")
    monkeypatch.setenv("VERIFIER_CONFIG", "")  # to be put back
    assert run("--config", str(trial.folder / "none.yaml"), "query", "list")[0] == 20


def test_a_reset_asks_first_and_a_dry_run_does_nothing(trial, run):
    trial.submit("r1", "no save")
    trial.discover()
    with trial.working():
        trial.until_status("r1", "error")
    status, said = run("admin", "reset", "--class", "final", "--dry-run")
    assert (status, "1 run would be verified again" in said) == (0, True)
    assert run("admin", "reset", "--class", "final", answer="n")[0] == 130
    assert run("admin", "reset-run", "r1", answer="n")[0] == 130
    status, said = run("admin", "reset-run", "r1", "--dry-run")
    assert (status, "1 run would be verified again" in said) == (0, True)
    assert trial.row("r1").status == "error"
    assert run("admin", "reset", "--class", "rate_limited")[1] == "0 runs would be verified again\n"
    assert run("admin", "reset", "--class", "final", answer="y")[1].endswith("r1 begins anew\n")
    assert trial.row("r1").status == "discovered"
    status, said = run("admin", "reset-run", "r1", "--force")
    assert (status, said.endswith("r1 is to be verified already\n")) == (0, True)


def test_a_reset_goes_on_after_a_run_that_is_in_work_by_now(trial, run, monkeypatch):
    for number in (1, 2, 3):
        trial.submit(f"r{number}", "no save", hours_ago=number)
    trial.discover()
    with trial.working():
        for number in (1, 2, 3):
            trial.until_status(f"r{number}", "error")

    def agreed(rows, *_: str, **__: bool) -> bool:
        trial.job("r2").retry()  # by somebody else, between the list and the deed
        return True

    monkeypatch.setattr(cli, "agreed", agreed)
    status, said = run("admin", "reset")
    assert [line.partition(":")[0] for line in said.splitlines()] == [
        "r1 begins anew", "r2 is left out", "r3 begins anew",
    ]  # fmt: skip
    assert status == 20


def test_a_mended_error_begins_anew_and_a_verdict_is_given_again(trial, run):
    trial.submit("broken", "no save")
    trial.submit("strict", "unfinished")
    trial.discover()
    with trial.working():
        trial.until_status("broken", "error")
        trial.until_status("strict", "failed")
        trial.submit("broken")
        trial.submit("strict")
        run("admin", "reset-run", "broken", "--force")
        run("admin", "reset", "--status", "failed", "--force")
        mended = trial.until_status("broken", "passed")
        again = trial.until_status("strict", "passed")
    assert (mended.verification, again.verification) == (1, 2)
    assert len(list(all_runs(trial.verifier))) == 2
    assert trial.discover() == 0  # a poll finds nothing new


def test_an_error_that_waits_is_due_at_once_with_its_count_or_begins_at_zero(trial, run):
    for one in ("kept", "cleared"):
        trial.submit(one)
        trial.order({"path": f"/api/runs/{one}", "status": 503, "count": 2})
    trial.discover()
    with trial.working():
        for one in ("kept", "cleared"):
            trial.until_status(one, "error")
        assert "due now, with 1 retries" in run("admin", "reset-run", "kept", "--force")[1]
        run("admin", "reset-run", "cleared", "--clear-error", "--force")
        kept = until_failures(trial, "kept", 2)
        cleared = until_failures(trial, "cleared", 1, verification=2)
    assert kept.next_retry_at > kept.updated_at
    assert cleared.error_class == "retryable"


def until_failures(trial, run_id: str, count: int, verification: int = 1):
    def is_so() -> bool:
        row = trial.row(run_id)
        wanted = (count, verification, "error")
        return (row.retry_count, row.verification, row.status) == wanted

    until(f"{run_id} has failed {count} times", is_so)
    return trial.row(run_id)


def test_a_cleanup_leaves_alone_what_was_reset_while_it_asked(trial, run, monkeypatch):
    for id, sort in (("mended", "no save"), ("broken", "no save"), ("good", "passed")):
        trial.submit(id, sort)
    trial.discover()
    with trial.working():
        for id, status in (("mended", "error"), ("broken", "error"), ("good", "passed")):
            trial.until_status(id, status)

    def agreed(rows, *_: str, **__: bool) -> bool:
        for id in ("mended", "good"):  # by somebody else, meanwhile
            reset(trial.verifier, trial.row(id), clear_error=False)
        return True

    monkeypatch.setattr(cli, "agreed", agreed)
    assert run("admin", "cleanup") == (0, "cleaned up: 1\n")
    saves = {one.name for one in (trial.folder / "data" / "saves").iterdir()}
    assert saves == {"mended.save", "good.save"}
    assert {row.run_id for row in all_runs(trial.verifier)} == {"mended", "good"}


def test_a_cleanup_removes_the_saves_of_what_has_ended_and_takes_errors_off_the_lists(trial, run):
    trial.submit("good")
    trial.submit("bad", "crash", header={"version": "1.0"})
    trial.submit("waits")
    trial.order({"path": "/games/2.0/mods", "status": 500, "count": 1})
    trial.discover()
    with trial.working(concurrency=1):
        trial.until_status("bad", "error")
        trial.until_status("waits", "error", "passed")
        trial.until_status("good", "error", "passed")
    saves = trial.folder / "data" / "saves"
    before = {one.name for one in saves.iterdir()}
    waiting = [row.run_id for row in all_runs(trial.verifier) if row.next_retry_at]
    assert (len(before), len(waiting)) == (3, 1)
    assert (
        run("admin", "cleanup", "--older-than", "1h", "--force")[1]
        == "0 runs would be cleaned up\n"
    )
    assert "2 runs would be cleaned up" in run("admin", "cleanup", "--dry-run")[1]
    assert {one.name for one in saves.iterdir()} == before
    assert run("admin", "cleanup", "--force")[1].endswith("cleaned up: 2\n")
    assert {one.name for one in saves.iterdir()} == {f"{waiting[0]}.save"}
    assert {row.run_id for row in all_runs(trial.verifier)} == {"good", "waits"}
    assert trial.discover() == 0


def test_a_library_that_is_missing_is_a_technical_error_and_no_verdict():
    without = "import runpy, sys; sys.modules['yaml'] = None; runpy.run_module('examples.verifier', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", without], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (20, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.rstrip().endswith("pip install perdure httpx2 pyyaml")
    assert len(done.stderr.splitlines()) == 1
