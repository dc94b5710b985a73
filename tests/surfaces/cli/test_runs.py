"""perdure runs: looked at by id, number or name, reported, fetched, paused, resumed, cancelled and sealed."""

import json
import os
import sqlite3

import pytest

from perdure.model.runs import RunStatus
from perdure.model.workers import NewWorker, Role
from perdure.surfaces.cli.run_report import bars
from tests.engine.kit import until
from tests.surfaces.letters import ITEMS, module_in

# -- looking ---------------------------------------------------------------------------------


def test_runs_are_listed_with_their_counts(archive):
    head, line = archive("runs", "list").splitlines()
    assert head.split() == [
        "no",
        "name",
        "pipeline",
        "status",
        "items",
        "succeeded",
        "failed",
        "open",
        "cost",
        "begun",
    ]
    assert line.split()[1:9] == ["march", "rows", "partial_success", "12", "9", "3", "0", "$3.0000"]
    (run,) = archive.json("runs", "list", "--pipeline", "rows", "--owner", "ann")
    assert (run["counts"]["failed"], run["counts"]["cost_usd"]) == (3, "3.000000000")
    assert (run["kinds"], run["settings"]["failure_budget"]) == (
        {"content_refused": 1, "input_invalid": 2},
        0.9,
    )
    assert (
        archive("runs", "list", "--live") == archive("runs", "list", "--owner", "b") == "no runs\n"
    )


def test_a_run_is_found_by_its_id_its_number_and_its_name(archive):
    run = archive.app.get_run("march")
    said = archive("runs", "show", "march")
    assert archive("runs", "show", run.id) == archive("runs", "show", str(run.no)) == said
    for words in (
        f"run march (number {run.no}, {run.id}) of pipeline rows: partial_success, 9 of 12 succeeded",
        "by ann, sealed 20",
        "12 items = 9 succeeded + 3 failed + 0 cancelled + 0 open",
        "24 attempts, 0 retries, 120 tokens in, 24 out, $3.0000",
        "failed by input_invalid: 2",
        "failure budget 90.0 %",
        f"perdure dead groups --run {run.no}",
    ):
        assert words in said
    for command in ("show", "report", "results", "pause", "resume", "seal"):
        told = archive.error("runs", command, "may")
        assert told.startswith("no run 'may'; see: perdure runs list --store ")


def test_a_report_says_what_the_reader_says(archive):
    figures = archive.app.get_run("march").report()
    assert archive.json("runs", "report", "march") == json.loads(json.dumps(figures.as_json()))
    said = archive("runs", "report", "march").splitlines()
    assert said[1] == (
        "12 items: 9 succeeded, 3 failed (25.0 % of those processed), 0 cancelled, 0 open"
    )
    words = [line.split() for line in said]
    assert ["0", "12", "100.0", "%", "█" * 40] in words
    assert ["2", "2", "input_invalid", "INVALID_REQUEST"] in words
    assert ["one", "12", "12", "0", "0", "0", "0.0", "%", "0.0", "%"] in [
        line[:10] for line in words
    ]
    assert ["two", "12", "9", "0", "3", "0", "0.0", "%", "25.0", "%"] in [
        line[:10] for line in words
    ]
    assert said[-4] == "wasted: 3 of 24 attempts (12.5 %), $0.0000 of $3.0000"
    assert said[-3] == "output that did not fit: 0 attempts (0.0 %)"
    assert said[-2] == "raw output kept: of 3 attempts (12.5 %)"
    assert said[-1].startswith("time to success: p50 ")


def test_a_histogram_has_a_line_for_each_count_up_to_the_most():
    assert bars({0: 400, 3: 1}) == [(0, "█" * 40), (1, ""), (2, ""), (3, "█")]


def test_results_and_failures_are_written_to_files(archive, tmp_path):
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    said = archive("runs", "results", "march", "-o", str(good), "--failures", str(bad))
    assert said == f"9 values in {good}, 3 without one in {bad}\n"
    values = [json.loads(line) for line in good.read_text().splitlines()]
    assert [(one["key"], one["result"]) for one in values] == [
        (str(n), n * 2) for n in range(12) if n not in (3, 7, 11)
    ]
    failures = [json.loads(line) for line in bad.read_text().splitlines()]
    assert [(one["key"], one["error_kind"]) for one in failures] == [
        ("3", "input_invalid"),
        ("7", "input_invalid"),
        ("11", "content_refused"),
    ]
    done = archive.run("runs", "results", "march")
    assert [json.loads(line)["result"] for line in done.stdout.splitlines()] == [
        one["result"] for one in values
    ]
    assert done.stderr == "9 values\n"
    nowhere = str(tmp_path / "no" / "x")
    assert "cannot be written" in archive.error("runs", "results", "march", "-o", nowhere)


# -- saying ----------------------------------------------------------------------------------


@pytest.fixture
def waiting(office):
    """The office with a second run that nobody works on and that is not sealed."""
    office.run_no = office.pipe.run([{"n": n} for n in range(5)], name="april", seal=False).no
    return office


def status(office, named: str = "april") -> RunStatus:
    return office.app.get_run(named).status


def test_a_run_is_paused_and_resumed_with_who_and_why(waiting):
    said = waiting("runs", "pause", "april", "--reason", "too loud", "--by", "bob")
    assert said == "april: paused; 5 items are open\n"
    assert "paused, too loud" in waiting("runs", "show", "april")
    assert f"to go on: perdure runs resume {waiting.run_no}" in waiting("runs", "show", "april")
    assert "it cannot be paused" in waiting.error("runs", "pause", "april")
    said = waiting(
        "runs",
        "resume",
        "april",
        "--failure-budget",
        "0.5",
        "--kind-budget",
        "timeout=0.25",
        "--cost-max-usd",
        "9.5",
        "--check-every",
        "10",
        "--sample-min",
        "5",
    )
    assert said == "april: running; 5 items are open\n"
    assert "failure budget 50.0 %, timeout 25.0 %, at most $9.5000" in waiting(
        "runs", "show", "april"
    )
    (_, deed, *_) = waiting.app._session.opened.reader.deeds()
    assert (deed.by_whom, deed.reason) == ("bob", "too loud")


WRONG = [
    (("--failure-budget", "20%"), "'20%' is a percentage; write the share: 0.2"),
    (("--completed-at", "99.5 %"), "'99.5 %' is a percentage; write the share: 0.995"),
    (("--partial-at", "150%"), "'150%' is not a valid float range"),
    (("--kind-budget", "timeout=5%"), "with a share from 0 to 1, as in timeout=0.05"),
    (("--kind-budget", "network=20%"), "with a share from 0 to 1, as in network=0.2"),
    (("--failure-budget", "7"), "'--failure-budget': 7.0 is not in the range 0<=x<=1"),
    (
        ("--kind-budget", "timeout"),
        "--kind-budget is 'timeout'; write KIND=SHARE with a share from 0 to 1",
    ),
    (("--kind-budget", "timeout=much"), "as in timeout=0.05"),
    (("--kind-budget", "boredom=0.2"), "boredom"),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_a_budget_that_is_none_is_refused(archive, words, said):
    done = archive.run("runs", "resume", "march", *words)
    assert done.exit_code != 0
    assert said in f"{done.exception}{done.stderr}"
    assert "\n" not in str(done.exception)


def test_an_aborted_run_goes_on_with_a_larger_budget(office):
    with office.app.working(poll_s=0.05):
        run = office.pipe.run(
            [{"n": 3}] * 300, name="may", failure_budget=0.1, check_every=5, sample_min=5
        )
        until(lambda: run.status is RunStatus.ABORTED, "it is aborted")
    shown = office("runs", "show", "may")
    assert ": aborted: the rate of failures is " in shown
    larger = "--failure-budget SHARE"
    assert f"to go on: its `perdure run` again, with --retry-failed or with {larger}\n" in shown
    assert (
        f"or for a worker that runs elsewhere: perdure runs resume {run.no} {larger} --s" in shown
    )
    assert "raise the budget" in office.error("runs", "resume", "may", "--failure-budget", "0.2")
    office.mended.touch()
    assert "may: running" in office("runs", "resume", "may", "--failure-budget", "1")
    with office.app.working(poll_s=0.05):
        until(lambda: office.app.get_run("may").view().ended_at is not None, "it is over")
    assert office("audit", "--run", "may").endswith("clean\n")


def test_an_aborted_run_goes_on_when_a_retry_that_waits_for_a_worker_is_carried_out(
    office, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    app = module_in(tmp_path, office.url, "resuming")
    with office.app.working(poll_s=0.05):
        run = office.pipe.run([{"n": 7}] * 100, name="june", sample_min=5, seal=False)
        until(lambda: run.status is RunStatus.ABORTED, "it is aborted")
    assert "bulk operation" in office("jobs", "retry", "--run", "june", "--detach", "--yes")
    told = office.error("runs", "resume", "june")
    assert "waits to do that: name the app, which knows the stages" in told
    assert f"(perdure runs resume {run.no} --app module:variable --store " in told
    assert "june: running; 100 items are open" in office("runs", "resume", "june", "--app", app)
    assert run.view().counts.failed == 0


def test_a_run_is_cancelled_by_who_is_sure(waiting):
    assert "nobody is there to answer; say --yes" in waiting.error("runs", "cancel", "april")
    assert status(waiting) is RunStatus.RUNNING
    said = waiting("runs", "cancel", "april", "--yes", "--reason", "a mistake")
    assert said == "april: cancelled; a worker cancels its 5 open items\n"
    assert status(waiting) is RunStatus.CANCELLED
    with waiting.app.working(poll_s=0.05):
        until(
            lambda: waiting.app.get_run("april").view().counts.cancelled == 5, "all are cancelled"
        )
    assert "it cannot be cancelled, because it is over" in waiting.error(
        "runs", "cancel", "march", "--yes"
    )


def test_an_unsealed_run_ends_when_it_is_sealed(waiting):
    said, no = waiting("runs", "show", "april"), waiting.run_no
    assert "\n  not sealed and fed by nobody since 20" in said
    assert (
        f"--name april), or say that all of its items are in: perdure runs seal {no} --store "
        in said
    )
    told = waiting.json("runs", "show", "april")
    assert (told["unfed_at"], told["feeding_at"]) == (told["fed_at"], None)
    assert told["fed_by"].endswith(f":{os.getpid()}")
    assert " running, unfed, no worker " in waiting("runs", "list")
    done = waiting.run("runs", "results", "april")
    assert (done.stdout, done.stderr) == ("", "0 values; 5 items are still open\n")
    assert waiting("runs", "seal", "april") == "april: sealed, running\n"
    with waiting.app.working(poll_s=0.05):
        until(lambda: status(waiting) is RunStatus.PARTIAL_SUCCESS, "it is over")
    assert waiting("runs", "seal", "april") == "april: sealed, partial_success\n"
    assert waiting.json("runs", "show", "april")["unfed_at"] is None


def test_a_run_that_is_held_or_that_nobody_works_on_says_so_with_what_to_type(waiting):
    pause = ("queues", "pause", "default", "--reason", "moving house")
    alone = "  no worker is alive on this store; start one: perdure worker MODULE:APP, or type its `perdure run` again\n"
    assert waiting("runs", "show", "april").endswith(alone)
    waiting(*pause)
    held = "held: queue default is paused, 5 waiting (moving house); to release it: perdure queues resume default"
    assert f"  {held} --store {waiting.url}\n{alone}" in waiting("runs", "show", "april")
    assert " running, unfed, held, no worker " in waiting("runs", "list")
    assert waiting.json("runs", "show", "april")["kept_back"][0].startswith(held)
    waiting.app._session.opened.store.add_worker(NewWorker("3", "lively", Role.MAIN, 3_600.0))
    assert " running, unfed, held " in waiting("runs", "list")
    assert alone not in waiting("runs", "show", "april")


def test_what_keeps_a_run_back_is_not_said_of_one_that_is_over_or_paused(waiting):
    assert waiting.json("runs", "show", "march")["kept_back"] == []
    waiting("runs", "pause", "april")
    assert waiting.json("runs", "show", "april")["kept_back"] == []
    assert " paused, unfed " in waiting("runs", "list")


def test_a_run_says_who_feeds_it(waiting):
    run = waiting.app.get_run("april").view()
    waiting.app._session.opened.control.note_feeding(run.no, "here:7")
    said = waiting("runs", "show", "april")
    assert "\n  not sealed: more items may follow, fed by here:7 since 20" in said


def test_a_run_that_has_nothing_left_to_do_is_over_when_it_is_resumed(waiting):
    nothing = waiting.pipe.run([], name="may", seal=False)
    nothing.pause()
    nothing.seal()
    assert waiting("runs", "resume", "may") == "may: completed; 0 items are open\n"


# -- audit of a run --------------------------------------------------------------------------


def test_an_audit_of_a_run_says_what_it_covered(archive):
    said = archive("audit", "--run", "march").splitlines()
    assert said[0].endswith(
        "partial_success: total 12 = succeeded 9 + failed 3 + cancelled 0 + open 0"
    )
    found = archive.json("audit", "--run", "march")
    assert (found["clean"], found["run"]["name"], found["findings"]) == (True, "march", [])
    checks, tables = len(found["checks"]), len(found["tables"])
    covered = f"{checks} checks over {tables} tables, of run march, among 12 jobs in store "
    assert said[1].startswith(covered)
    assert said[2:] == ["clean"]
    assert {"run_counts_differ", "too_early", "books_balance"} <= set(found["checks"])
    assert {"jobs", "attempts", "runs", "artifacts"} <= set(found["tables"])
    assert archive.json("audit")["run"] is None
    assert archive.error("audit", "--run", "may").startswith("no run 'may'; see: perdure runs list")


def test_an_audit_of_a_run_names_its_own_damage_and_no_other(waiting):
    victim = waiting.ids()[0]
    path = waiting.url.removeprefix("sqlite:///")
    with sqlite3.connect(path) as cx:
        cx.execute(
            "DELETE FROM perdure_attempts WHERE job = (SELECT no FROM perdure_jobs WHERE id = ?)",
            (victim,),
        )
    cx.close()
    assert waiting("audit", "--run", "april").endswith("clean\n")
    for words in (("audit", "--run", "march"), ("audit",)):
        said = waiting(*words, code=1)
        assert victim in said
        assert said.endswith("findings\n")
    found = waiting.json("audit", "--run", "march", code=1)
    assert victim in {one["subject"] for one in found["findings"]}


def test_jobs_are_listed_by_their_run_and_by_a_key_in_it(archive):
    assert len(archive.json("jobs", "list", "--run", "march")) == ITEMS
    (job,) = archive.json("jobs", "list", "--run", "march", "--key", "3")
    assert (job["payload"], job["owner"]) == ({"n": 3}, "ann")
    assert archive.json("jobs", "list", "--key", "3") == []
    assert archive.json("jobs", "list", "--key", "3", "--owner", "ann") == [job]
    assert "no run 'april'" in archive.error("jobs", "list", "--run", "april")
