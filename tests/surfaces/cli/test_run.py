"""perdure run, as people run it: real processes, real signals, every item accounted for."""

import contextlib
import io
import json
import os
import pty
import re
import select
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from perdure import App, StageError
from perdure.app.batch import snapshot as snapshot_module
from perdure.app.batch.carry_out import RunRequest, carry_out
from perdure.app.batch.outcome import LeftAtOnce, RunOutcome
from perdure.app.batch.snapshot import BudgetLeft, Held, RunPace, RunSnapshot, Watch
from perdure.app.runs import Run
from perdure.app.surface.gate_control import hold
from perdure.engine.batch import runs as runs_module
from perdure.engine.batch.feeding import Fed
from perdure.engine.batch.item_jobs import NothingNow
from perdure.engine.gates.pacing import PaceShown
from perdure.model.errors import PerdureError
from perdure.model.nouns import replace
from perdure.model.operations import Deed, LaneScope
from perdure.model.runs import RunChange, RunCounts, RunStatus
from perdure.model.workers import NewWorker, Role
from perdure.surfaces.cli.options import _STORE, check_app_store, command
from perdure.surfaces.cli.root import cli
from perdure.surfaces.cli.run import run as run_command
from perdure.surfaces.cli.run_panel import lines, panel, progress_line
from perdure.surfaces.cli.run_summary import Files, resume, summary_lines
from tests.house.tree import ROOT
from tests.house.walkthrough import Walk
from tests.servers.postgres import Server
from tests.servers.programs import MissingPart
from tests.stories.kit import CLI, Story, on_both, on_both_long, played, until

APP = """
import os, pathlib, time
from perdure import App, StageError

app = App()


def note(*words):
    with open("notes.txt", "a") as file:
        file.write(" ".join(map(str, words)) + chr(10))


def is_open(n):
    return pathlib.Path("go").exists() or pathlib.Path(f"go-{n}").exists()


@app.stage
def first(item):
    note("first", item["n"])
    return item


@app.stage
def second(item, context):
    context.usage(tokens_in=100, tokens_out=20, cost_usd=0.01)
    if item.get("bad"):
        raise StageError("invalid_request", f"row {item['n']} is bad")
    if item.get("wait"):
        note("waits", item["n"])
        while not is_open(item["n"]):
            time.sleep(0.02)
    note("second", item["n"])
    return {"twice": 2 * int(item["n"])}


app.pipeline("p", first, second)
app.pipeline("other", first)
alone = App("sqlite:///alone.db")
alone.pipeline("only", alone.stage(first))
"""


RAISES = """        raise StageError("invalid_request", f"row {item['n']} is bad")"""


@pytest.fixture
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    on_postgres = getattr(request, "param", "sqlite") == "postgres"
    url = request.getfixturevalue("furnished") if on_postgres else None
    with played(tmp_path, url) as one:
        (one.folder / "batch.py").write_text(APP)
        one.settings |= {"PERDURE_GRACE_S": "10", "PERDURE_LEASE_TTL_S": "2"}
        yield one


def write_items(story: Story, items: list[dict[str, Any]], name: str = "items.jsonl") -> None:
    (story.folder / name).write_text("".join(json.dumps(one) + "\n" for one in items))


def lines_in(story: Story, name: str) -> list[dict[str, Any]]:
    path = story.folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def notes(story: Story) -> Counter[str]:
    path = story.folder / "notes.txt"
    return Counter(path.read_text().splitlines() if path.exists() else ())


def done_once(story: Story, count: int) -> None:
    """Each stage of each item has ended, and none of them twice."""
    found = {line: times for line, times in notes(story).items() if not line.startswith("waits")}
    assert found == {f"{stage} {n}": 1 for stage in ("first", "second") for n in range(count)}


def run(story: Story, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    done = story.perdure("run", "batch:p", "items.jsonl", "-o", "out.jsonl", *words, **more)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@contextmanager
def begun(story: Story, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A run under way; it is ended with the block."""
    with (story.folder / "said.txt").open("w") as said:
        process = subprocess.Popen(
            [*CLI, "run", "batch:p", "items.jsonl", "-o", "out.jsonl", *words],
            cwd=story.folder,
            env=story.environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


def said(story: Story) -> str:
    return (story.folder / "said.txt").read_text()


def is_quiet(story: Story) -> bool:
    """Whether no process of the story is left; unlike the story's own end, this ends none."""
    pids = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]
    return not any(story.is_ours(pid) for pid in pids)


# -- to the end ---------------------------------------------------------------------------


def test_a_key_that_no_item_has_is_answered_with_the_fields_that_they_have(story):
    write_items(story, [{"n": 1, "name": "a"}])
    before = story.folder / "before.jsonl"
    before.write_text('{"of": "an earlier run"}\n')
    done = run(story, "--key", "nokey", "--no-work", "-o", str(before))
    assert done.returncode == 2
    assert before.read_text() == '{"of": "an earlier run"}\n'
    assert f"results: {before} is left as it was" in done.stdout
    assert done.stderr == (
        "perdure: item 1 of the run: items.jsonl line 1: it has no field 'nokey' to name it; its fields are: n, name; "
        "call it again with another --key, or with none\n"
    )


def test_a_new_run_whose_first_item_is_refused_is_not_made(story):
    write_items(story, [{"n": 1, "name": "a"}])
    done = run(story, "--key", "nokey", "--no-work", "--new")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "perdure: item 1 of the run: items.jsonl line 1: it has no field 'nokey' to name it; its fields are: n, name; "
        "call it again with another --key, or with none\n"
    )
    (story.folder / "items.jsonl").write_text("{oops\n")
    done = run(story, "--no-work", "--new")
    assert done.returncode == 2
    assert done.stderr.startswith("perdure: item 1 of the run: items.jsonl line 1 is no JSON value")
    assert done.stderr.endswith("; mend it, or pass --skip-bad\n")
    (story.folder / "items.jsonl").write_bytes('"Käse"\n'.encode("latin-1"))
    done = run(story, "--no-work", "--new")
    assert done.returncode == 2
    assert done.stderr.endswith("; convert it: iconv -f ENCODING -t UTF-8\n")
    write_items(story, [{"n": 1}])
    assert run(story, "--new", "--key", "n").returncode == 0
    listed = story.perdure("runs", "list", "--json")
    assert len(json.loads(listed.stdout)) == 1


@pytest.mark.story
@on_both
def test_a_batch_is_completed_and_the_same_command_repeats_nothing(story):
    write_items(story, [{"n": n} for n in range(12)])
    done = run(story, "--key", "n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "run items.jsonl: completed after" in done.stdout
    assert "12 of 12 items succeeded, 0 failed" in done.stdout
    assert "results: out.jsonl (12)" in done.stdout
    assert "cost $0.1200; tokens 1,200 in, 240 out" in done.stdout
    written = lines_in(story, "out.jsonl")
    assert [(one["key"], one["result"]["twice"]) for one in written] == [
        (str(n), 2 * n) for n in range(12)
    ]
    assert not (story.folder / "out.jsonl.part").exists()
    (story.folder / "out.jsonl").unlink()
    again = run(story, "--key", "n")
    assert again.returncode == 0
    assert "12 items were in this run before" in again.stdout
    assert lines_in(story, "out.jsonl") == written
    done_once(story, 12)
    story.assert_audit_is_clean()
    assert is_quiet(story)


@pytest.mark.story
@pytest.mark.parametrize(("bad", "status", "code"), [(2, "partial_success", 3), (8, "failed", 4)])
def test_the_exit_status_and_the_summary_say_how_a_run_ended(story, bad, status, code):
    write_items(story, [{"n": n, "bad": n < bad} for n in range(10)])
    done = run(story, "--failures", "bad.jsonl", "--json")
    assert done.returncode == code, done.stderr
    assert done.stderr == ""
    summary = json.loads(done.stdout)
    assert (summary["name"], summary["status"], summary["exit_code"]) == (
        "items.jsonl",
        status,
        code,
    )
    counts = summary["counts"]
    assert (counts["total"], counts["succeeded"], counts["failed"]) == (10, 10 - bad, bad)
    assert summary["kinds"] == {"invalid_request": bad}
    assert (summary["tokens_in"], summary["tokens_out"]) == (1_000, 200)
    assert summary["cost_usd"] == "0.100000000"
    assert summary["results"] == {"path": "out.jsonl", "lines": 10 - bad}
    assert summary["failures"] == {"path": "bad.jsonl", "lines": bad}
    assert len(lines_in(story, "out.jsonl")) == 10 - bad
    failed = lines_in(story, "bad.jsonl")
    assert [one["key"].partition(":")[0] for one in failed] == [str(n) for n in range(bad)]
    assert {one["error_kind"] for one in failed} == {"invalid_request"}
    assert all(one["job_id"] and one["error"] and one["error_code"] for one in failed)
    raised = f"StageError at batch:{APP.splitlines().index(RAISES) + 1}: row "
    assert all(one["error_detail"].startswith(raised) for one in failed)
    most = summary["most_failed"]
    assert (most["count"], most["kind"], most["stage"]) == (bad, "invalid_request", "second")
    assert most["example"].startswith(raised)


@pytest.mark.story
def test_a_summary_says_what_most_failed_of_and_where_and_how_the_file_becomes_whole(story):
    write_items(story, [{"n": n, "bad": n < 2} for n in range(6)])
    done = run(story, "--key", "n", "--failures", "bad.jsonl")
    at = APP.splitlines().index(RAISES) + 1
    newest = lines_in(story, "bad.jsonl")[-1]
    most = f"  most alike: 2 in stage second, invalid_request: StageError at batch:{at}: row 1 is bad; "
    assert f"{most}one of them, 1: perdure jobs show {newest['job_id']}\n" in done.stdout
    told = "  the whole file, when they were driven again: perdure "
    (command,) = [line for line in done.stdout.splitlines() if line.startswith(told)]
    assert len(lines_in(story, "out.jsonl")) == 4
    (story.folder / "batch.py").write_text(APP.replace('item.get("bad")', "False"))
    story.worker("w", module="batch")
    again = story.perdure("dead", "redrive", "--run", "1", "--yes")
    assert again.returncode == 0, again.stdout + again.stderr
    written = story.perdure(*shlex.split(command.removeprefix(told)))
    assert written.returncode == 0, written.stderr
    assert [one["result"]["twice"] for one in lines_in(story, "out.jsonl")] == [0, 2, 4, 6, 8, 10]
    assert lines_in(story, "bad.jsonl") == []


@pytest.mark.story
@on_both_long
def test_an_overspent_budget_aborts_the_run_and_a_larger_one_goes_on_with_it(story):
    write_items(story, [{"n": n, "bad": True} for n in range(600)])  # in a look's time 200 may end
    wary = ("--check-every", "10", "--sample-min", "10", "--concurrency", "2")
    done = run(story, *wary)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "run items.jsonl: aborted" in done.stdout
    assert "the rate of failures is 100 %, the budget is 10 %" in done.stdout
    assert "processed, " in done.stdout
    assert "go on with a larger budget: perdure run batch:p items.jsonl" in done.stdout
    processed = story.states()["failed"]
    assert 10 <= processed < 600
    again = run(story, "--json")
    assert again.returncode == 5
    assert "give it a larger budget" in again.stderr
    assert json.loads(again.stdout)["counts"]["failed"] == processed
    last = run(story, "--failure-budget", "1")
    assert last.returncode == 4, last.stdout + last.stderr
    assert story.states() == {"failed": 600}
    assert "perdure dead groups --run 1" in last.stdout
    assert max(times for line, times in notes(story).items() if line.startswith("first")) == 1
    story.assert_audit_is_clean()


@pytest.mark.story
@pytest.mark.parametrize("way", ["one command", "a retry that waits"])
@on_both_long
def test_what_has_failed_in_an_aborted_run_is_tried_again_without_a_worker(story, way):
    write_items(story, [{"n": n, "bad": n < 12, "wait": n >= 12} for n in range(20)])
    story.settings["PERDURE_GRACE_S"] = "0.5"
    done = run(story, "--sample-min", "10", "--concurrency", "2")
    assert done.returncode == 5, done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if "try again what has failed: " in line]
    failed = story.states()["failed"]
    (story.folder / "batch.py").write_text(APP.replace(RAISES, "        pass"))
    story.open_gate("go")
    words = shlex.split(told[0].partition("what has failed: perdure ")[2])
    assert words[-1] == "--retry-failed"
    if way != "one command":
        waits = story.perdure("jobs", "retry", "--run", "1", "--detach", "--yes")
        assert "bulk operation" in waits.stdout, waits.stderr
        words.pop()
    again = story.perdure(*words)
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"  {failed:,} items that had failed before were tried again" in again.stdout
    assert story.states() == {"succeeded": 20}
    assert len(lines_in(story, "out.jsonl")) == 20
    story.assert_audit_is_clean()


@pytest.mark.story
def test_a_cost_beyond_the_budget_aborts_the_run(story):
    write_items(story, [{"n": n, "wait": n > 8} for n in range(20)])
    story.settings["PERDURE_GRACE_S"] = "0.5"
    done = run(story, "--cost-max-usd", "0.055", "--concurrency", "1")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "the cost is $0." in done.stdout
    assert "--cost-max-usd USD" in done.stdout


# -- stopped and gone on with ----------------------------------------------------------------


def waiting(story: Story) -> set[int]:
    """The items whose second stage has begun to wait and has not ended."""
    found = notes(story)
    begun = {int(line.split()[1]) for line in found if line.startswith("waits ")}
    return {n for n in begun if f"second {n}" not in found}


@pytest.mark.story
@pytest.mark.parametrize(
    ("story", "order"),
    [
        ("sqlite", "items"),
        pytest.param("postgres", "items", marks=pytest.mark.long),
        pytest.param("sqlite", "ended", marks=pytest.mark.long),
    ],
    indirect=["story"],
)
def test_an_interrupted_run_writes_what_there_is_and_goes_on_without_repeating(story, order):
    options = ("--concurrency", "2", *(("--as-completed",) if order == "ended" else ()))
    story.settings["PERDURE_GRACE_S"] = "4"
    write_items(story, [{"n": n, "wait": n >= 5} for n in range(20)])
    with begun(story, *options) as process:
        part = "out.jsonl.part"
        until("5 results", lambda: len(lines_in_whole(story, part)) == 5, within_s=60)
        until("two wait", lambda: len(waiting(story)) == 2, within_s=60)
        process.send_signal(signal.SIGINT)
        until("it is told", lambda: "stopping" in said(story), within_s=30)
        ends, stays = sorted(waiting(story), reverse=True)
        story.open_gate(f"go-{ends}")  # the one before it is still open when we leave
        assert process.wait(60) == 130, said(story)
    assert "run items.jsonl: interrupted" in said(story)
    again = "perdure run batch:p items.jsonl -o out.jsonl " + " ".join(options)
    assert f"nothing is lost. Go on with: {again}" in said(story)
    there = {one["result"]["twice"] // 2 for one in lines_in(story, "out.jsonl")}
    assert there == {0, 1, 2, 3, 4, ends}
    assert stays not in there
    until("nothing runs any more", lambda: is_quiet(story), within_s=30)
    story.open_gate("go")
    done = run(story, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    values = [one["result"]["twice"] for one in lines_in(story, "out.jsonl")]
    assert sorted(values) == [2 * n for n in range(20)]
    assert order == "ended" or values == sorted(values)
    done_once(story, 20)
    story.assert_audit_is_clean()


def lines_in_whole(story: Story, name: str) -> list[str]:
    """The lines that are there already, of a file that somebody writes."""
    path = story.folder / name
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


@pytest.mark.story
def test_a_new_run_that_is_killed_has_said_how_to_go_on_and_the_next_one_says_it_again(story):
    write_items(story, [{"n": n} for n in range(3)])
    told = []
    for jobs in (3, 6):
        with begun(story, "--no-work", "--new") as process:
            until("it has begun", lambda: "another run begins" in said(story), within_s=120)
            until("all is in", lambda jobs=jobs: story.states() == {"queued": jobs}, within_s=120)
            process.kill()
        told.append(said(story))
    begins = re.match(r"another run begins, (\S+); to go on with it: perdure (.+)\n", told[0])
    assert begins, told[0]
    name, command = begins.groups()
    assert told[1].startswith(
        f"run {name} of this file is not over; to go on with it: perdure {command}\nanother run "
    )
    done = story.perdure(*(word for word in command.split() if word != "--no-work"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(lines_in(story, "out.jsonl")) == 3


@pytest.mark.story
def test_a_second_ctrl_c_leaves_at_once_and_nothing_is_lost(story):
    write_items(story, [{"n": n, "wait": True} for n in range(6)])
    with begun(story, "--concurrency", "2", "--new") as process:
        until("two wait", lambda: len(waiting(story)) == 2, within_s=60)
        process.send_signal(signal.SIGINT)
        until("it is told", lambda: "stopping" in said(story), within_s=30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(25) == 130, said(story)
    until("the worker has gone too", lambda: is_quiet(story), within_s=30)
    words = said(story).partition("left at once; nothing is lost. Go on with: perdure ")[2].split()
    assert words[:5] == ["run", "batch:p", "items.jsonl", "-o", "out.jsonl"]
    assert "--new" not in words
    assert "--name" in words
    story.open_gate("go")
    done = story.perdure(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(lines_in(story, "out.jsonl")) == 6
    assert story.states() == {"succeeded": 6}
    story.assert_audit_is_clean()


@pytest.mark.story
def test_a_run_that_somebody_cancels_or_pauses_tells_so(story):
    write_items(story, [{"n": n, "wait": n == 1} for n in range(4)])
    app = App(story.url)
    try:
        with begun(story, "--concurrency", "1") as process:
            until("it waits", lambda: waiting(story), within_s=60)
            app.get_run("items.jsonl").pause(reason="lunch")
            until("it is told", lambda: "(lunch)" in said(story), within_s=30)
            assert "the run is paused; to go on: perdure runs resume 1" in said(story)
            app.get_run("items.jsonl").cancel(reason="no longer wanted")
            story.open_gate("go")
            assert process.wait(60) == 6, said(story)
    finally:
        app.close()
    assert "run items.jsonl: cancelled" in said(story)
    assert set(story.states()) == {"succeeded", "cancelled"}
    assert lines_in(story, "out.jsonl")[0]["result"] == {"twice": 0}
    story.assert_audit_is_clean()
    again = run(story)
    assert again.returncode == 2
    assert "was cancelled; take another name" in again.stderr
    assert lines_in(story, "out.jsonl")


@pytest.mark.story
@pytest.mark.long
def test_whoever_leaves_a_paused_run_is_told_how_it_goes_on(story):
    write_items(story, [{"n": 0, "wait": True}, {"n": 1}])
    app = App(story.url)
    try:
        with begun(story, "--concurrency", "1") as process:
            until("it waits", lambda: waiting(story), within_s=60)
            app.get_run("items.jsonl").pause(reason="lunch")
            story.open_gate("go")
            until("it has ended", lambda: "second 0" in notes(story), within_s=30)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130, said(story)
    finally:
        app.close()
    assert "the run is paused (lunch): perdure runs resume 1" in said(story)
    assert "The run is paused; first: perdure runs resume 1. Go on with: " in said(story)
    assert story.perdure("runs", "resume", "items.jsonl").returncode == 0
    done = run(story)
    assert done.returncode == 0, done.stdout
    assert "paused" not in done.stdout


@pytest.mark.story
def test_ctrl_c_after_the_end_neither_cuts_the_summary_nor_changes_the_exit_status(story):
    write_items(story, [])
    told, teller = os.pipe()
    os.set_blocking(teller, False)
    with contextlib.suppress(BlockingIOError):
        while True:  # until it is full: the summary cannot be written before we read
            os.write(teller, b"." * 4096)
    os.set_blocking(teller, True)
    process = subprocess.Popen(
        [*CLI, "run", "batch:p", "items.jsonl", "-o", "out.jsonl"],
        cwd=story.folder,
        env=story.environment(),
        stdin=subprocess.DEVNULL,
        stdout=teller,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(teller)
    with os.fdopen(told) as summary:
        until("it is over", (story.folder / "out.jsonl").exists, within_s=60)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        said = summary.read().lstrip(".")
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, ""), said
    assert said.startswith("run items.jsonl: completed")
    assert said.endswith("  results: out.jsonl (0)\n")


def test_a_file_with_the_results_of_another_run_is_told_of_with_what_writes_them_again(story):
    app = App(story.url)
    other = app.pipeline("other", app.stage(lambda n: n))
    before = other.run([1], name="before")
    (job,) = app.jobs.list()
    app.close()
    out = story.folder / "out.jsonl"
    write_items(story, [])
    told = "out.jsonl had the results of run before (number 1) and gets those of this one; "
    again = f"to write the others again: perdure runs results {before.no} --output FILE"
    out.write_text(json.dumps({"key": "0", "job_id": job.id, "result": 1}) + "\n")
    assert f"{told}{again}" in run(story, "--no-work").stderr
    assert lines_in(story, "out.jsonl") == []
    for nothing in ("", "no JSON\n", '{"job_id": "of another store"}\n'):
        out.write_text(nothing)
        assert run(story, "--no-work").stderr == ""


@pytest.mark.story
def test_a_command_that_is_left_at_once_still_gives_its_summary_as_json(story):
    write_items(story, [{"n": n, "wait": True} for n in range(3)])
    with begun(story, "--json") as process:
        until("they wait", lambda: len(waiting(story)) == 3, within_s=60)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(25) == 130, said(story)
    until("the worker has gone too", lambda: is_quiet(story), within_s=30)
    summary = json.loads(said(story).partition("left at once")[0])
    assert (summary["status"], summary["run_status"]) == ("interrupted", "running")
    assert (summary["exit_code"], summary["interrupted"]) == (130, True)
    assert summary["counts"]["open"] == 3
    assert summary["resume"] == "perdure run batch:p items.jsonl -o out.jsonl --json"
    assert summary["results"] is None
    story.open_gate("go")
    done = story.perdure(*summary["resume"].split()[1:])
    assert json.loads(done.stdout)["status"] == "completed"


@pytest.mark.story
@pytest.mark.long
def test_a_killed_command_takes_its_worker_with_it(story):
    story.settings["PERDURE_GRACE_S"] = "0.2"
    write_items(story, [{"n": 0, "wait": True}])
    with begun(story) as process:
        until("it waits", lambda: waiting(story), within_s=60)
        process.kill()
        process.wait(30)
        until("the worker has gone too", lambda: is_quiet(story), within_s=30)
    story.open_gate("go")
    assert run(story).returncode == 0
    assert len(lines_in(story, "out.jsonl")) == 1


@pytest.mark.story
@pytest.mark.parametrize(
    ("which", "what"), [("worker", "the worker"), ("worker-child", "a working process")]
)
def test_a_worker_that_is_killed_is_replaced(story, which, what):
    write_items(story, [{"n": n, "wait": True} for n in range(3)])
    with begun(story) as process:
        until("all wait", lambda: len(waiting(story)) == 3, within_s=60)
        (worker,) = [
            int(one.name)
            for one in Path("/proc").iterdir()
            if one.name.isdigit() and story.is_ours(int(one.name)) and is_worker(one, which)
        ]
        os.kill(worker, signal.SIGKILL)
        told = f"{what} was killed by SIGKILL; another one is started in its place\n"
        until("it is told", lambda: told in said(story), within_s=60)
        story.open_gate("go")
        assert process.wait(60) == 0, said(story)
    assert said(story).count(told) == 1
    assert "processes of the worker that died, and were started anew: 1\n" in said(story)
    assert len(lines_in(story, "out.jsonl")) == 3


def is_worker(entry: Path, which: str) -> bool:
    words = (entry / "cmdline").read_bytes().split(b"\0")
    return which.encode() in words


@pytest.mark.story
@pytest.mark.long
def test_a_stage_that_ends_its_process_ends_neither_the_command_nor_the_others(story):
    code = APP.replace(
        '    if item.get("bad"):\n',
        '    if item.get("crash"):\n        os._exit(9)\n    if item.get("bad"):\n',
    )
    (story.folder / "batch.py").write_text(code)
    write_items(story, [{"n": n, "crash": n == 2} for n in range(6)])
    done = run(story, "--failures", "bad.jsonl", "--partial-at", "0.6")
    assert done.returncode == 3, done.stdout + done.stderr
    assert len(lines_in(story, "out.jsonl")) == 5
    assert [one["error_kind"] for one in lines_in(story, "bad.jsonl")] == ["worker_lost"]


@pytest.mark.story
@pytest.mark.long
def test_a_store_that_is_away_for_a_moment_is_waited_for(tmp_path, missing):
    try:
        server = Server()
    except MissingPart as part:
        missing(str(part))
    with server, played(tmp_path, server.create_database()) as story:
        (story.folder / "batch.py").write_text(APP)
        write_items(story, [{"n": n, "wait": n >= 5} for n in range(9)])
        with begun(story, "--concurrency", "4") as process:
            part = "out.jsonl.part"
            until("5 results", lambda: len(lines_in_whole(story, part)) == 5, within_s=60)
            server.stop("immediate")
            until("it is told", lambda: "the store is away" in said(story), within_s=60)
            server.start()
            story.open_gate("go")
            assert process.wait(60) == 0, said(story)
        values = [one["result"]["twice"] for one in lines_in(story, "out.jsonl")]
        assert values == [2 * n for n in range(9)]
        story.assert_audit_is_clean()


# -- where it goes ----------------------------------------------------------------------------


@pytest.mark.story
def test_a_second_command_with_the_same_file_of_results_is_refused_and_the_first_goes_on(story):
    write_items(story, [{"n": n, "wait": True} for n in range(2)])
    with begun(story) as process:
        until("they wait", lambda: len(waiting(story)) == 2, within_s=60)
        second = run(story, "--name", "second")
        assert second.returncode == 2, second.stdout + second.stderr
        assert "another command is writing out.jsonl now" in second.stderr
        assert "write to another file" in second.stderr
        story.open_gate("go")
        assert process.wait(60) == 0, said(story)
    assert len(lines_in(story, "out.jsonl")) == 2
    assert not named(story, "second")


@pytest.mark.story
def test_results_go_into_a_pipe_and_to_standard_output_where_these_are_named(story):
    write_items(story, [{"n": n} for n in range(4)])
    os.mkfifo(story.folder / "pipe")
    with subprocess.Popen(
        ["cat", "pipe"], cwd=story.folder, stdout=subprocess.PIPE, text=True
    ) as reader:
        done = story.perdure(
            "run", "batch:p", "items.jsonl", "-o", "pipe", "--failures", "/dev/null"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        read, _ = reader.communicate(timeout=30)
    assert [json.loads(line)["result"]["twice"] for line in read.splitlines()] == [0, 2, 4, 6]
    assert (story.folder / "pipe").is_fifo()
    assert Path("/dev/null").is_char_device()
    with (story.folder / "shown.txt").open("w") as shown:
        subprocess.run(
            [*CLI, "run", "batch:p", "items.jsonl", "-o", "/dev/stdout"],
            cwd=story.folder,
            env=story.environment(),
            stdout=shown,
            check=True,
            timeout=60,
        )
    text = (story.folder / "shown.txt").read_text()
    assert [line for line in text.splitlines() if line.startswith("{")] == read.splitlines()
    assert "run items.jsonl: completed" in text


# -- what goes in -----------------------------------------------------------------------------


@pytest.mark.story
def test_items_come_from_csv_and_a_worker_may_be_somebody_elses(story):
    (story.folder / "rows.csv").write_text("n,text\n1,one\n2,zwei\n")
    story.worker("other", module="batch")
    done = story.perdure("run", "batch:app:p", "rows.csv", "-o", "out.jsonl", "--no-work")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one["result"]["twice"] for one in lines_in(story, "out.jsonl")] == [2, 4]
    assert "run rows.csv: completed" in done.stdout


@pytest.mark.story
def test_items_come_from_standard_input_and_a_name_adds_to_a_run(story):
    def piped(*words: str, lines: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CLI, "run", "batch:p", "-", "-o", "out.jsonl", "--key", "n", *words],
            cwd=story.folder,
            env=story.environment(),
            input=lines,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = piped("--name", "mine", lines='{"n": 1}\n\n{"n": 2}\n')
    assert done.returncode == 0, done.stdout + done.stderr
    more = piped("--name", "mine", lines='{"n": 2}\n{"n": 3}\n')
    assert more.returncode == 0
    assert [one["key"] for one in lines_in(story, "out.jsonl")] == ["1", "2", "3"]
    assert "1 items of this run are not in standard input" in more.stdout
    assert notes(story)["first 2"] == 1
    fresh = piped("--json", lines="")
    assert fresh.returncode == 0
    summary = json.loads(fresh.stdout)
    assert summary["name"] == summary["id"]
    assert summary["counts"]["total"] == 0


@pytest.mark.story
def test_a_source_that_gives_nothing_more_does_not_keep_a_run_from_being_interrupted(story):
    process = subprocess.Popen(
        [*CLI, "run", "batch:p", "-", "--name", "mine"],
        cwd=story.folder,
        env=story.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until("the run is there", lambda: named(story, "mine"), within_s=30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
        out, err = process.stdout.read(), process.stderr.read()
    finally:
        process.kill()
        process.communicate(timeout=30)
    assert "run mine: interrupted" in out
    assert "--name mine < the same items" in err
    assert "Fatal" not in err


def named(story: Story, name: str) -> bool:
    try:
        return bool(story.rows("SELECT 1 FROM perdure_runs WHERE name = ?", name))
    except sqlite3.Error:  # the store is not there yet, or has no tables
        return False


@pytest.mark.story
def test_cells_that_do_not_fit_a_typed_stage_are_told_to_be_text(story):
    text = "class Row:\n    n: int\n\napp = App()\n\n@app.stage\ndef one(item: Row):\n    return item.n\n\np = app.pipeline('p', one)\n"
    head = "import dataclasses\nfrom perdure import App\n\n@dataclasses.dataclass\n"
    (story.folder / "typed.py").write_text(head + text)
    (story.folder / "rows.csv").write_text("n\n1\n2\n")
    words = ("run", "typed:p", "rows.csv", "--no-work")
    done = story.perdure(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the cells of a .csv or .tsv are text: annotate the field as str" in done.stderr
    assert "--skip-bad" not in done.stderr.partition(" items are in")[0]
    skipped = story.perdure(*words, "--skip-bad", "--new")
    assert skipped.returncode == 2, skipped.stdout + skipped.stderr
    assert "there are no items in rows.csv, but those that were left out" in skipped.stdout
    assert "left out, because they could not be read: 2" in skipped.stdout


@pytest.mark.story
def test_a_bad_line_ends_the_feeding_with_its_place_and_a_way_on(story):
    (story.folder / "items.jsonl").write_text('{"n": 0}\n{"n": 1}\n{oops\n{"n": 3}\n')
    done = run(story)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "items.jsonl line 3 is no JSON value" in done.stderr
    assert "mend it, or pass --skip-bad" in done.stderr
    assert "go on with: perdure run batch:p items.jsonl -o out.jsonl" in done.stderr
    skipped = run(story, "--skip-bad")
    assert skipped.returncode == 0, skipped.stdout + skipped.stderr
    assert "left out: item 3: items.jsonl line 3" in skipped.stderr
    assert "left out, because they could not be read: 1" in skipped.stdout
    assert [one["result"]["twice"] for one in lines_in(story, "out.jsonl")] == [0, 2, 6]


@pytest.mark.story
@pytest.mark.long
def test_a_file_of_the_same_name_elsewhere_is_not_taken_for_the_same(story):
    write_items(story, [{"n": 0}])
    assert run(story).returncode == 0
    (story.folder / "b").mkdir()
    write_items(story, [{"n": 1}], "b/items.jsonl")
    command = ("run", "batch:p", "b/items.jsonl", "-o", "b.jsonl")
    other = story.perdure(*command)
    assert other.returncode != 0
    for words in (
        str(story.folder / "items.jsonl"),
        str(story.folder / "b/items.jsonl"),
        "--name",
        "--new",
    ):
        assert words in other.stderr
    assert notes(story)["first 1"] == 0
    assert story.perdure(*command, "--name", "items.jsonl").returncode == 0
    assert notes(story)["first 1"] == 1
    assert run(story).returncode == 0


@pytest.mark.story
@pytest.mark.long
def test_another_key_than_before_is_refused_because_all_items_would_be_in_twice(story):
    write_items(story, [{"n": n, "id": f"i{n}"} for n in range(2)])
    assert run(story, "--key", "nothing").returncode == 2  # and fed nothing
    assert run(story, "--key", "id").returncode == 0
    for words, now in (("--key", "n"), "the key 'n'"), ((), "no key"):
        done = run(story, *words)
        assert done.returncode == 2, done.stdout
        assert done.stderr == (
            f"perdure: run 'items.jsonl' was fed with the key 'id', and not with {now}: its items would be in it "
            "twice; go on with the same (--key id), or begin another run (--name, or --new)\n"
        )
    assert run(story, "--key", "id").returncode == 0
    assert story.states() == {"succeeded": 2}


@pytest.mark.story
def test_items_that_have_the_key_of_an_earlier_one_are_told_of(story):
    write_items(story, [{"n": n % 3} for n in range(5)])
    done = run(story, "--key", "n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 items have the key of an earlier item of items.jsonl and count once" in done.stdout
    assert "not in items.jsonl" not in done.stdout
    fresh = run(story, "--key", "n", "--new", "--json")
    assert json.loads(fresh.stdout)["fed"]["repeated"] == 2
    write_items(story, [{"n": n} for n in range(3)])
    assert "earlier item" not in run(story, "--key", "n").stdout


@pytest.mark.story
@pytest.mark.long
def test_a_run_goes_on_after_its_pipeline_has_moved_to_another_queue(story):
    story.settings["PERDURE_GRACE_S"] = "0.2"
    write_items(story, [{"n": n, "wait": n < 2} for n in range(4)])
    with begun(story, "--concurrency", "2") as process:
        until("two wait", lambda: len(waiting(story)) == 2, within_s=60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, said(story)
    until("nothing runs any more", lambda: is_quiet(story), within_s=30)
    moved = APP.replace(
        'app.pipeline("p", first, second)',
        'app.pipeline("p", first, second, queue="q", category="c")',
    )
    assert moved != APP
    (story.folder / "batch.py").write_text(moved)
    story.open_gate("go")
    done = run(story)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one["result"]["twice"] for one in lines_in(story, "out.jsonl")] == [0, 2, 4, 6]
    done_once(story, 4)
    story.assert_audit_is_clean()


@pytest.mark.story
def test_an_empty_file_is_a_completed_run(story):
    write_items(story, [])
    done = run(story)
    assert done.returncode == 0
    assert "completed" in done.stdout
    assert "there are no items in items.jsonl" in done.stdout
    assert lines_in(story, "out.jsonl") == []
    assert (story.folder / "out.jsonl").exists()


# -- on a terminal ----------------------------------------------------------------------------


@pytest.mark.story
def test_a_terminal_gets_a_panel_and_then_the_summary(story):
    write_items(story, [{"n": n} for n in range(5)])
    ours, theirs = pty.openpty()
    environment = story.environment(TERM="xterm", COLUMNS="100")
    with subprocess.Popen(
        [*CLI, "run", "batch:p", "items.jsonl", "-o", "out.jsonl"],
        cwd=story.folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = read_all(ours)
        assert process.wait(30) == 0, shown
    assert "run items.jsonl of p" in without_style(shown)
    assert "budget" in shown
    assert "5 of 5 items succeeded" in shown


def read_all(terminal: int) -> str:
    text = b""
    give_up_at = time.monotonic() + 60
    while time.monotonic() < give_up_at:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        text += piece
    os.close(terminal)
    return text.decode(errors="replace")


def without_style(text: str) -> str:
    kept, inside = [], False
    for letter in text:
        if letter == "\x1b":
            inside = True
        elif not inside:
            kept.append(letter)
        elif letter.isalpha():
            inside = False
    return "".join(kept)


# -- what is refused ----------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PERDURE_STORE", "sqlite:///work.db")
    (tmp_path / "refusing.py").write_text(APP)
    (tmp_path / "items.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "items.json").write_text('[{"n": 1}]')
    (tmp_path / "broken.jsonl").write_text('{"n": 1}\n[nonsense]\n')
    (tmp_path / "folder.jsonl").mkdir()
    for name in ("sheet.xlsx", "sheet.csv"):
        (tmp_path / name).write_bytes(b"PK\x03\x04\x14\x00\x06\x00")
    (tmp_path / "link.jsonl").symlink_to("items.jsonl")
    yield tmp_path
    sys.modules.pop("refusing", None)


REFUSED = [
    (
        ["refusing:none", "items.jsonl"],
        "no app or pipeline 'none'; it has the apps: alone, app; the pipelines: only, other, p",
    ),
    (["refusing", "items.jsonl"], "names no pipeline, and the app has not just one"),
    (["refusing:app:none", "items.jsonl"], "no pipeline 'none'; it has: other, p"),
    (["refusing:p", "none.jsonl"], "none.jsonl: there is no such file"),
    (["refusing:p", "folder.jsonl"], "is a folder"),
    (["refusing:p", "."], ". is a folder; name a file of items"),
    (["refusing:p", "refusing.py"], "the ending '.py' is of neither; name it .jsonl, .csv or .tsv"),
    (
        ["refusing:p", "items.json"],
        "write one item a line, as jq -c '.[]' does, and name it .jsonl",
    ),
    (
        ["refusing:p", "broken.jsonl"],
        "broken.jsonl line 2 is no JSON value (expecting value, column 2)",
    ),
    (
        ["refusing.py", "items.jsonl"],
        "'refusing.py' is a file; write its module and the app in it: refusing:app",
    ),
    (["refusing:p", "sheet.xlsx"], "sheet.xlsx: a .xlsx file is no list of items; save it as .csv"),
    (
        ["refusing:p", "sheet.csv"],
        "sheet.csv is a spreadsheet or another archive, whatever its name",
    ),
    (["refusing:p", "items.jsonl", "-o", "items.jsonl"], "items.jsonl is named twice"),
    (["refusing:p", "items.jsonl", "-o", "link.jsonl"], "items.jsonl is named twice"),
    (["refusing:p", "items.jsonl", "-o", "-"], "results go to a file"),
    (["refusing:p", "items.jsonl", "-o", "folder.jsonl"], "folder.jsonl is a folder; name a file"),
    (["refusing:p", "items.jsonl", "--failures", "."], ". is a folder; name a file"),
    (["refusing:p", "items.jsonl", "-o", "none/out.jsonl"], "cannot be written"),
    (["refusing:p", "items.jsonl", "--new", "--name", "x"], "give one of them"),
    (["refusing:p", "items.jsonl", "--kind-budget", "timeout"], "write KIND=SHARE"),
    (["refusing:p", "items.jsonl", "--kind-budget", "timeout=2"], "a share from 0 to 1"),
    (["refusing:p", "items.jsonl", "--failure-budget", "20%"], "write the share: 0.2"),
    (
        ["refusing:p", "items.jsonl", "--kind-budget", "timeot=0.2"],
        "--kind-budget 'timeot=0.2': there is no failure kind 'timeot'; did you mean 'timeout'? One of: ambiguous,",
    ),
    (
        ["refusing:p", "items.jsonl", "--kind-budget", "banana=0.1"],
        "there is no failure kind 'banana'; one of: ambiguous, auth,",
    ),
    (
        ["refusing:p", "items.jsonl", "--failure-budget", "2"],
        "'--failure-budget': 2.0 is not in the range 0<=x<=1",
    ),
    (["refusing:p", "items.jsonl", "--backlog", "0"], "'--backlog': 0 is not in the range x>=1"),
    (["refusing:p", "items.jsonl", "--concurrency", "0"], "concurrency"),
    (["refusing:alone:only", "items.jsonl", "--store", "sqlite:///b.db"], "by its own word"),
]


@pytest.mark.parametrize(("words", "complaint"), REFUSED, ids=[" ".join(one) for one, _ in REFUSED])
def test_what_cannot_be_run_is_refused_with_a_reason(place, words, complaint):
    answer = CliRunner().invoke(cli, ["run", *words])
    if isinstance(answer.exception, PerdureError):
        code, text = answer.exception.exit_code, str(answer.exception)
    else:
        code, text = answer.exit_code, answer.output + answer.stderr
    assert (code, complaint in text) == (2, True), text
    assert "\n" not in text.strip() or isinstance(answer.exception, SystemExit)
    assert not list(place.glob("*.part"))
    if "folder" in complaint or "archive" in complaint:
        assert not (place / "work.db").exists()  # so there is no run either


# -- without a terminal or a command ---------------------------------------------------------------


@pytest.fixture
def app(tmp_path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/p.db")

    @app.stage
    def same(item):
        return item

    app.pipeline("p", same)
    yield app
    app.close()


def carried(app: App, asked: Any = lambda: 0, **order: Any) -> RunOutcome:
    return carry_out(app.get_pipeline("p"), RunRequest(**order), lambda shot: None, asked)


def test_a_worker_that_cannot_live_is_an_error_that_keeps_the_items(app):
    command = [sys.executable, "-c", "raise SystemExit(7)"]
    outcome = carried(app, items=[1, 2], name="a", worker=command)
    assert "the worker ended by itself with status 7" in str(outcome.error)
    assert outcome.run.counts.open == 2


def test_a_worker_that_takes_its_time_is_said_to_be_starting(app, monkeypatch):
    monkeypatch.setattr(snapshot_module, "_STARTED_S", 0.0)
    shots: list[RunSnapshot] = []
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    order = RunRequest([1], name="a", worker=command, grace_s=0.0)

    def asked() -> int:
        return int(any(one.note for one in shots))

    carry_out(app.get_pipeline("p"), order, shots.append, asked)
    notes = [one.note for one in shots if not one.stopping]
    assert notes[-1] == "the worker is starting"
    assert not any(one.note for one in shots if one.stopping)


def test_what_a_worker_says_is_repeated_when_it_is_put_aside(app):
    heard: list[str] = []
    command = [sys.executable, "-c", "print('a word'); raise SystemExit(7)"]
    carried(app, items=[1], name="a", worker=command, aside=True, hear=heard.append)
    assert heard == ["a word"]


def test_a_retry_that_its_rate_holds_back_is_named_where_the_run_is_still_over_its_budget(app):
    def breaks(item):
        raise StageError("invalid_request", "it breaks")

    pipe = app.pipeline("q", app.stage(policy="datasets-once")(breaks))
    with app.working(poll_s=0.05):
        batch = pipe.run(range(300), name="a", sample_min=5, check_every=5)
        until("it is aborted", lambda: batch.status is RunStatus.ABORTED, within_s=60)
    bulk = app.jobs.retry(run="a", rate="1/h")
    order = RunRequest(items=range(300), name="a")
    outcome = carry_out(pipe, order, lambda shot: None, lambda: 0)
    assert f"; bulk operation {bulk.id} has more to try again: give" in outcome.refused
    assert (outcome.revived, outcome.run.status) == (0, RunStatus.ABORTED)


def test_an_embedded_worker_will_do_as_well(app, tmp_path):
    with app.working(concurrency=4):
        outcome = carried(app, items=range(50), name="a", results=tmp_path / "out.jsonl")
    assert (outcome.run.counts.succeeded, outcome.results, outcome.error) == (50, 50, None)
    assert outcome.fed.created == 50


def test_an_order_to_stop_leaves_the_run_open_and_a_second_one_leaves_at_once(app, tmp_path):
    outcome = carried(app, lambda: 1, items=range(5), name="a", results=tmp_path / "out.jsonl")
    assert outcome.interrupted
    assert (tmp_path / "out.jsonl").read_text() == ""
    with pytest.raises(LeftAtOnce):
        carried(app, lambda: 2, items=range(5), name="a", results=tmp_path / "out.jsonl")
    assert not list(tmp_path.glob("*.part"))


def stopped_and_resumed(app: App, shown: threading.Event) -> Iterator[Any]:
    """Items of a run that is aborted after the first ones and resumed when its feeder has seen that."""
    yield from range(3)
    assert shown.wait(30)
    run = app.get_run("a")
    run._session.runs.abort(run.view(), "aborted: enough")
    yield NothingNow()
    run.resume()
    yield 4


def test_a_run_that_goes_on_after_its_feeder_has_stopped_is_shown_as_unfed(app, monkeypatch):
    shown, fed = threading.Event(), threading.Event()
    shots: list[RunSnapshot] = []

    def show(shot: RunSnapshot) -> None:
        shots.append(shot)
        shown.set()
        assert fed.wait(30)  # the run is not looked at meanwhile

    def source() -> Iterator[Any]:
        for item in stopped_and_resumed(app, shown):
            if item == 4:
                fed.set()
            yield item

    def asked() -> int:
        return int(bool(shots) and shots[-1].note.startswith("the run is not sealed and fed by"))

    with app.working(concurrency=2):
        outcome = carry_out(app.get_pipeline("p"), RunRequest(source(), "a"), show, asked)
        assert (outcome.interrupted, outcome.fed.whole) == (True, False)
        assert "perdure runs seal 1" in progress_line(shots[-1])
        shots.clear()
        shown.clear()
        fed.clear()
        monkeypatch.setattr(runs_module, "FEEDER_SILENT_S", 0.0)
        outcome = carry_out(app.get_pipeline("p"), RunRequest(source(), "a"), show, lambda: 0)
    assert "is not sealed and fed by nobody" in str(outcome.error)
    assert outcome.run.counts.succeeded == 4  # what was taken from the source is fed


def test_a_run_that_is_sealed_just_after_it_was_read_is_not_shown_as_unfed(app, monkeypatch):
    read = threading.Event()
    shots: list[RunSnapshot] = []
    look = Watch.run

    def look_slowly(watch: Watch) -> Any:
        run = look(watch)
        if not read.is_set():
            read.set()
            until("its feeder has sealed it", lambda: look(watch).sealed_at, within_s=30)
        return run

    def source() -> Iterator[Any]:
        assert read.wait(30)
        yield 1

    monkeypatch.setattr(Watch, "run", look_slowly)
    monkeypatch.setattr(
        runs_module, "FEEDER_SILENT_S", 0.0
    )  # who gave no sign by now feeds nothing
    with app.working(concurrency=2):
        order = RunRequest(source(), "a")
        outcome = carry_out(app.get_pipeline("p"), order, shots.append, lambda: 0)
    assert (outcome.error, outcome.run.counts.succeeded) == (None, 1)
    assert shots
    assert not any("fed by nobody" in one.note for one in shots)


def test_feeding_waits_while_the_backlog_is_full(app):
    shots = []

    def asked() -> int:
        return int(len(shots) > 3)

    outcome = carry_out(
        app.get_pipeline("p"), RunRequest(range(100), "a", backlog_max=7), shots.append, asked
    )
    assert outcome.run.counts.total == 7
    assert not outcome.fed.whole
    assert shots[-1].feeding
    assert shots[-1].note.startswith("no worker is alive")


@pytest.mark.story
def test_a_reader_of_the_page_sees_what_it_shows(tmp_path):
    walk = Walk(tmp_path, frozenset())
    walk.through((ROOT / "docs" / "howto-runs.md").read_text(encoding="utf-8"))
    assert len([one for one in walk.typed if one.startswith("perdure run")]) == 2
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 19
    (failure,) = map(json.loads, (tmp_path / "failures.jsonl").read_text().splitlines())
    assert failure.keys() == {
        "key",
        "job_id",
        "state",
        "error_kind",
        "error_code",
        "error",
        "error_detail",
    }
    assert len((tmp_path / "hundred.jsonl").read_text().splitlines()) == 100


# -- what is shown --------------------------------------------------------------------------------


def test_whoever_looks_on_is_told_what_holds_the_run_and_why(app, tmp_path):
    shot = watched(app, lambda run: run.pause(reason="the bill is open"))
    (held,) = shot.held
    assert (held.what, held.why, held.waiting) == ("the run is paused", "the bill is open", 3)
    line = progress_line(shot)
    assert "held: the run is paused, 3 waiting (the bill is open)" in line
    assert "0 of 3 done" in line
    assert "the run is paused" in drawn(shot)


def test_an_aborted_run_is_not_called_paused(app):
    def abort(run: Run) -> None:
        change = RunChange(run.view().no, RunStatus.RUNNING, RunStatus.ABORTED, why="aborted: x")
        app._session.opened.control.change_run(change, Deed("", ""))

    shot = watched(app, abort)
    assert (shot.run.status, shot.held) == (RunStatus.ABORTED, ())
    assert "held" not in progress_line(shot)
    assert "paused" not in progress_line(shot)
    assert "the run is aborted" in progress_line(shot)


def test_neither_a_caller_nor_a_worker_that_fell_silent_counts_as_somebody_who_works(app):
    def seen() -> bool:
        watch = Watch(app._session.opened, run.id)
        watch.look(watch.run(), Fed(1), feeding=False)
        return watch.anybody_works

    run = app.get_pipeline("p").run([1], name="a").view()
    store = app._session.opened.store
    store.add_worker(NewWorker("1", "caller", Role.CALLER, 3_600.0))
    store.add_worker(NewWorker("2", "silent", Role.MAIN, 1e-6))
    assert not seen()
    store.add_worker(NewWorker("3", "lively", Role.MAIN, 3_600.0))
    assert seen()


@pytest.mark.parametrize(
    "for_text",
    [None, "30m"],
)
def test_a_held_gate_is_named_with_its_reason_and_the_command_that_releases_it(tmp_path, for_text):
    app = App(f"sqlite:///{tmp_path}/g.db")
    app.upstream("my vendor")

    @app.stage(upstream="my vendor")
    def ask(item):
        return item

    app.pipeline("p", ask)
    said = {"by_whom": "me", "reason": "it is down", "for_text": for_text}
    try:
        shot = watched(app, lambda _: hold(app._session.opened, "my vendor", **said))
    finally:
        app.close()
    (held,) = shot.held
    assert held.what == "upstream my vendor is held"
    assert "it is down" in held.why
    assert "it is down" in drawn(shot)
    release = "perdure gates release 'my vendor' --reason …"
    assert f"it is down); to release it: {release} |" in f"{progress_line(shot)} |"


@pytest.fixture
def paced(tmp_path):
    """An app with a pipeline behind an upstream whose calls a worker starts at half a call a second since a rate limit."""
    app = App(f"sqlite:///{tmp_path}/g.db")

    @app.stage(upstream="vendor")
    def ask(item):
        return item

    app.pipeline("p", ask)
    store, now = app._session.opened.store, app._session.opened.reader.now()
    pace = PaceShown(0.5, 9, 7.5, "a rate limit was met", now, now, 0.01)
    said = msgspec.json.encode({"samples": [], "pace": pace}).decode()
    worker = store.add_worker(NewWorker("1", "host:1", Role.MAIN, 3_600.0))
    store.look_at_gates(["vendor"], worker=worker, samples={"vendor": said})
    yield app
    app.close()


def test_a_pace_that_holds_the_run_back_is_told_with_since_when_and_whether_it_climbs(paced):
    shot = watched(paced, lambda _: None)
    words = r"vendor is paced: 0\.5 calls a second \(was 7\.5\) since \d\d:\d\d UTC, climbing"
    assert re.search(rf"\| {words}$", progress_line(shot))
    assert re.search(words, drawn(shot))


@pytest.mark.parametrize(("calls", "told"), [(3, False), (25, True)])
def test_a_pace_is_not_blamed_where_far_fewer_calls_are_made_than_it_allows(paced, calls, told):
    seconds = iter([0.0, 0.0, 60.0])
    run = paced.get_pipeline("p").run([1, 2, 3], name="b").view()
    watch = Watch(paced._session.opened, run.id, monotonic=lambda: next(seconds))
    watch.look(run, Fed(3), feeding=False)
    later = replace(run, counts=replace(run.counts, calls=calls))
    assert bool(watch.look(later, Fed(3), feeding=False).paced) is told


def test_requests_and_tokens_are_left_out_where_no_stage_has_any(app):
    shot = watched(app, lambda _: None)
    for text in (progress_line(shot), drawn(shot)):
        assert "requests/min" not in text
        assert "tokens/min" not in text
    asked = replace(shot, run=replace(shot.run, counts=replace(shot.run.counts, calls=1)))
    assert "| 0 requests/min |" in progress_line(asked)


def test_a_paused_queue_is_named_with_the_command_that_resumes_it(app):
    deed = Deed("me", "moving house")
    shot = watched(
        app, lambda _: app._session.opened.control.pause(LaneScope.QUEUE, "default", deed)
    )
    assert (
        "held: queue default is paused, 3 waiting (moving house); to release it: perdure queues resume default"
        in progress_line(shot)
    )


def test_what_waits_for_a_stage_that_is_gone_or_in_a_queue_that_is_not_the_pipelines_is_held(
    tmp_path,
):
    def made(*names: str, queue: str = "default") -> App:
        app = App(f"sqlite:///{tmp_path}/p.db")
        app.pipeline("p", *(app.stage(name=name)(lambda item: item) for name in names), queue=queue)
        return app

    with closing(made("one", "two")) as app:
        run = app.get_pipeline("p").run([1, 2, 3], name="my run")

    def held(*names: str, hired: bool = False, queue: str = "default") -> list[Held]:
        with closing(made(*names, queue=queue)) as app:
            app.ready()
            watch = Watch(
                app._session.opened, run.id, laid=app.get_pipeline("p")._laid, hired=hired
            )
            return list(watch.look(watch.run(), Fed(3, 3), feeding=False).held)

    assert held("one", "two") == []
    (gone,) = held("two", hired=True)
    assert (gone.what, gone.waiting) == ("stage 'one' is not in the pipeline any more", 3)
    assert f"perdure runs cancel {run.view().no}" in gone.why
    (moved,) = held("one", "two", queue="q")
    assert (moved.what, moved.waiting) == ("the pipeline is no longer in default/default", 3)
    assert held("one", "two", queue="q", hired=True) == []


def test_nobody_says_when_a_run_will_be_over_that_does_not_move(app):
    seconds = iter([0.0, 0.0, 1.0, 10.9, 11.0, 12.0])
    run = app.get_pipeline("p").run([1], name="a").view()
    watch = Watch(app._session.opened, run.id, monotonic=lambda: next(seconds))

    def eta_s(done: int) -> float | None:
        counts = RunCounts(total=100, succeeded=done, attempts=done)
        return watch.look(replace(run, counts=counts), Fed(100), feeding=False).eta_s

    assert eta_s(0) is None
    assert eta_s(97) == pytest.approx(3 / 97)
    assert eta_s(97) is not None
    assert eta_s(97) is None
    assert eta_s(98) is not None


def test_nobody_says_when_a_run_will_be_over_that_is_held_or_was_a_moment_ago(app):
    seconds = iter([0.0, 0.0, 2.0, 4.0, 13.0, 14.5])
    run = app.get_pipeline("p").run([1], name="a")
    watch = Watch(app._session.opened, run.id, monotonic=lambda: next(seconds))

    def eta_s(done: int) -> float | None:
        counts = RunCounts(total=100, succeeded=done, attempts=done)
        return watch.look(replace(run.view(), counts=counts), Fed(100), feeding=False).eta_s

    assert eta_s(0) is None
    run.pause(reason="the bill is open")
    assert eta_s(50) is None
    run.resume()
    assert eta_s(60) is None
    assert eta_s(70) == pytest.approx(30 * 13 / 70)
    assert eta_s(80) == pytest.approx(20 * 14.5 / 80)


def test_what_most_of_the_retried_items_have_failed_of_is_named_beside_them(tmp_path):
    with closing(App(f"sqlite:///{tmp_path}/r.db")) as app:

        @app.stage
        def ask(item):
            raise StageError("auth" if item else "billing", "no")

        run = app.pipeline("p", ask).run([0, 1, 2], name="a")
        watch = Watch(app._session.opened, run.id)
        assert watch.look(watch.run(), Fed(3), feeding=False).cause == ""
        with app.working(poll_s=0.05):
            until("each was tried", lambda: run.view().counts.attempts == 3, within_s=60)
        watch = Watch(app._session.opened, run.id)
        shot = watch.look(watch.run(), Fed(3), feeding=False)
        assert "| retrying 3 (auth), open 3 |" in progress_line(shot)
        assert "3 retrying (auth)" in drawn(shot)
        many = replace(run.view(), counts=RunCounts(total=7))
        assert watch.look(many, Fed(7), feeding=False).cause == ""  # most of it goes on
        shown = CliRunner().invoke(cli, ["runs", "show", "a", "--store", app._session.url])
    listed = f"perdure jobs list --run {shot.run.no} --state retrying"
    assert f"\n  retrying 3, most after auth: {listed} --store " in shown.output


def watched(app: App, deed: Callable[[Run], object]) -> RunSnapshot:
    """A run with three items and no worker, looked at after something was done to it."""
    run = app.get_pipeline("p").run([1, 2, 3], name="a")
    deed(run)
    watch = Watch(app._session.opened, run.id)
    return watch.look(watch.run(), Fed(3, 3), feeding=False)


def test_pace_cost_and_time_left_follow_from_the_counters(app):
    seconds = iter([0.0, 0.0, 30.0])
    run = app.get_pipeline("p").run([1], name="a").view()
    watch = Watch(app._session.opened, run.id, monotonic=lambda: next(seconds))
    early = replace(run, counts=RunCounts(total=100, succeeded=10, attempts=30, calls=20))
    watch.look(early, Fed(100), feeding=True)
    late = replace(
        run,
        counts=RunCounts(
            total=100,
            succeeded=35,
            failed=5,
            attempts=120,
            calls=80,
            tokens_in=900,
            tokens_out=100,
            cost_nusd=2_000_000_000,
        ),
        kinds={"timeout": 4, "invalid_request": 1},
    )
    shot = watch.look(late, Fed(100), feeding=True)
    assert shot.pace == RunPace(1.0, 120.0, 2_000.0)
    assert shot.eta_s == 60.0
    assert shot.projected_usd == pytest.approx(5.0)
    assert shot.allowance == BudgetLeft(5, 40, 0.1)
    assert shot.allowance.used == 1.0
    line = progress_line(shot)
    for words in (
        "40 of 100+ done",
        "succeeded 35, failed 5 (timeout 4, invalid_request 1)",
        "120 requests/min, 2,000 tokens/min",
        "cost $2.0000, about $5.0000 in all",
        "failures 12.5%, 10.0% allowed",
        "ETA more than 60 s",
    ):
        assert words in line
    text = drawn(replace(shot, retrying=1_000))
    for words in ("40 of 100+ done", "1,000 retrying", "4 timeout", "1 invalid_request", "12.5%"):
        assert words in text


HINTS = [
    (
        "aborted: the rate of failures is 50 %, the budget is 10 % (…)",
        ["--failure-budget", "0.1", "-o", "out.jsonl"],
        "or go on with a larger budget: perdure run w items.jsonl -o out.jsonl --failure-budget SHARE",
    ),
    (
        "aborted: the rate of timeout failures is 50 %, the budget is 10 % (…)",
        ["--kind-budget", "timeout=0.1", "--kind-budget=auth=0"],
        "or go on with a larger budget: perdure run w items.jsonl --kind-budget=auth=0 --kind-budget timeout=SHARE",
    ),
    (
        "aborted: the cost is $1.0000, the budget is $0.5000 (…)",
        ["--cost-max-usd=0.5", "--name", "a", "--name", "b"],
        "go on with a larger budget: perdure run w items.jsonl --name b --cost-max-usd USD",
    ),
    (
        "aborted: the first 20 items have all failed in the same way",
        ["--new", "--skip-bad", "--retry-failed"],
        "go on when it is mended, and try again what has failed: perdure run w items.jsonl --skip-bad --name a --retry-failed",
    ),
]


@pytest.mark.parametrize(("why", "typed", "hint"), HINTS)
def test_the_command_that_goes_on_has_each_option_once(app, monkeypatch, why, typed, hint):
    run = replace(
        app.get_pipeline("p").run([1], name="a").view(), status=RunStatus.ABORTED, why=why
    )
    files = Files("items.jsonl", None, None)
    monkeypatch.setattr(sys, "argv", ["perdure", "run", "w", "items.jsonl", *typed])
    with click.Context(run_command):
        again = resume(run.name, files, anonymous="--new" in typed)
        summary, _ = summary_lines(RunOutcome(run, Fed(1, 1, whole=True), 1.0), files, again)
    assert summary[-1] == f"  {hint}"


ABORTED = [why for why, _, _ in HINTS]


@pytest.mark.parametrize("why", ABORTED)
def test_whoever_goes_on_with_an_aborted_run_is_told_to_retry_what_has_failed(app, why):
    run = app.get_pipeline("p").run([1], name="two words").view()
    run = replace(run, status=RunStatus.ABORTED, why=why, counts=RunCounts(total=9, failed=5))
    files = Files("items.jsonl", None, None)
    with click.Context(run_command) as context:
        context.meta[_STORE] = "postgresql://me:secret@host/my db"
        summary, _ = summary_lines(RunOutcome(run, Fed(9, 9), 1.0), files, "perdure run w")
    store = "--store 'postgresql://me:PASSWORD@host/my db'"
    assert f"  what failed, by cause: perdure dead groups --run {run.no} {store}" in summary
    retry = "  go on when it is mended, and try again what has failed: perdure run w --retry-failed"
    assert (retry in summary) == ("cost" not in why)
    assert ("with a larger budget: " in summary[-1]) == ("the first 20" not in why)


RETRIED = ["completed", "partial_success", "failed"]


@pytest.mark.parametrize("status", [*RETRIED, "cancelled", "running"])
def test_the_summary_of_a_run_with_failures_names_the_command_that_tries_them_again(app, status):
    run = app.get_pipeline("p").run([1], name="a").view()
    run = replace(run, status=RunStatus(status), counts=RunCounts(total=9, failed=5))
    files, again = Files("-", None, None), "perdure run w - --name a < the same items"
    hint = "  when it is mended, try again what has failed: perdure run w - --name a --retry-failed < the same items"
    for failed, told in ((5, status in RETRIED), (0, False)):
        one = replace(run, counts=RunCounts(total=9, failed=failed))
        summary, _ = summary_lines(RunOutcome(one, Fed(9, 9), 1.0), files, again)
        assert (hint in summary) is told


def test_the_commands_of_a_held_line_name_the_store_of_an_app_that_names_its_own(app):
    shot = watched(app, lambda run: run.pause(reason="the bill is open"))
    url = app._session.url
    with click.Context(run_command):
        check_app_store("w", url, None)
        line = progress_line(shot)
    resume_it = f"perdure runs resume {shot.run.no} --store {shlex.quote(url)}"
    assert f"(the bill is open); to release it: {resume_it} | " in line
    assert f"to go on: {resume_it}" in line


@pytest.mark.parametrize(
    ("default", "shown"),
    [(None, False), ("sqlite:///perdure.db", False), ("nonsense", True), ("sqlite:///b.db", True)],
)
def test_a_command_names_the_store_only_where_it_is_not_the_default_one(
    tmp_path, monkeypatch, default, shown
):
    monkeypatch.chdir(tmp_path)
    if default is not None:
        monkeypatch.setenv("PERDURE_STORE", default)
    else:
        monkeypatch.delenv("PERDURE_STORE", raising=False)
    with click.Context(run_command):
        check_app_store("w", f"sqlite:///{tmp_path}/perdure.db", None)
        typed = command("perdure queues resume {}", "a b")
    assert typed.startswith("perdure queues resume 'a b'")
    assert (" --store " in typed) is shown


def drawn(shot: RunSnapshot) -> str:
    console = Console(width=110, file=io.StringIO())
    console.print(panel(shot))
    return console.file.getvalue()


def test_lines_are_written_now_and_then_and_whenever_something_changes(app):
    run = app.get_pipeline("p").run([1], name="a").view()
    watch = Watch(app._session.opened, run.id)
    shot = watch.look(run, Fed(1), feeding=False)
    written: list[str] = []
    show = lines(written.append)
    for at_s in (0.0, 1.0, 9.0, 10.0, 11.0):
        show(replace(shot, elapsed_s=at_s))
    assert [line.split()[0] for line in written] == ["0", "10"]
    show(replace(shot, elapsed_s=12.0, stopping=True))
    assert "stopping" in written[-1]


def test_a_gate_that_comes_and_goes_makes_a_line_every_ten_seconds_with_how_often_it_was(app):
    run = app.get_pipeline("p").run([1], name="a").view()
    shot = Watch(app._session.opened, run.id).look(run, Fed(1), feeding=False)
    held = (Held("upstream m is held", "", 1),)
    written: list[str] = []
    show = lines(written.append)
    show(replace(shot, elapsed_s=0.0))
    for tenth in range(1, 300):
        show(replace(shot, elapsed_s=tenth / 10, held=held if tenth % 2 else ()))
    assert [line.split()[0] for line in written] == ["0", "0", "10", "20"]
    assert "held: upstream m is held" in written[1]
    assert [line.rpartition("| ")[2] for line in written[2:]] == ["100 changes of what is held"] * 2
