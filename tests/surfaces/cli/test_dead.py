"""perdure dead: dead letters looked at, driven again by filter, stopped, continued, discarded and exported."""

import json
import os
import pty
import re
import signal
import subprocess

import pytest
from click.testing import CliRunner

from perdure import StageError
from perdure.model.states import State
from perdure.surfaces.cli.root import cli
from tests.engine.kit import until
from tests.surfaces.letters import BAD, RAISED_AT, Office, module_in, office_at

ALL = ("dead", "redrive", "--all", "--yes")

# What stage two raises, and the line that does.
RAISED = f"StageError at tests.surfaces.letters:{RAISED_AT}"


def numbers(office, *words: str) -> list[int]:
    """The items of the dead letters that are listed, newest first."""
    return [one["payload"]["n"] for one in office.json("dead", "list", *words)]


# -- looking ---------------------------------------------------------------------------------


FILTERS = [
    ((), [11, 7, 3]),
    (("--pipeline", "rows"), [11, 7, 3]),
    (("--stage", "two"), [11, 7, 3]),
    (("--stage", "one"), []),
    (("--run", "march"), [11, 7, 3]),
    (("--run", "march", "--kind", "input_invalid"), [7, 3]),
    (("--kind", "content_refused"), [11]),
    (("--code", "INVALID_REQUEST"), [11, 7, 3]),
    (("--code", "E1"), []),
    (("--owner", "ann"), [11, 7, 3]),
    (("--owner", "bob"), []),
    (("--key", "7", "--owner", "ann"), [7]),
    (("--key", "7", "--run", "march"), [7]),
    (("--key", "7"), []),
    (("--text", "ROW 7"), [7]),
    (("--newer-than", "1h"), [11, 7, 3]),
    (("--older-than", "1h"), []),
    (("--older-than", "0s"), [11, 7, 3]),
    (("--discarded",), []),
    (("--limit", "2"), [11, 7]),
]


@pytest.mark.parametrize(("words", "found"), FILTERS, ids=lambda one: " ".join(map(str, one)))
def test_dead_letters_are_listed_by_filter(archive, words, found):
    assert numbers(archive, *words) == found


def test_a_list_says_where_it_goes_on_and_goes_on_there(archive):
    head, first, second, more = archive("dead", "list", "--limit", "2").splitlines()
    assert head.split()[0] == "no"
    assert f"content_refused INVALID_REQUEST  {RAISED}: bad row 11" in first
    assert "rows/two" in second
    number = re.fullmatch(r"more: --before (\d+)", more)[1]
    assert numbers(archive, "--before", number) == [3]
    assert archive("dead", "list", "--owner", "bob") == "no dead letters with owner 'bob'\n"


def test_groups_count_what_belongs_together(archive):
    two, one = archive.json("dead", "groups")
    assert (two["count"], two["kind"], two["stage"], two["example"]) == (
        2,
        "input_invalid",
        "two",
        f"{RAISED}: bad row 7",
    )
    assert (one["count"], one["kind"]) == (1, "content_refused")
    assert two["first_at"] <= two["last_at"]
    assert numbers(archive, "--fingerprint", two["fingerprint"]) == [7, 3]
    head, first, second, hint = archive("dead", "groups").splitlines()
    assert head.split() == ["count", "kind", "stage", "first", "last", "fingerprint", "example"]
    assert first.split()[:4] == ["2", "input_invalid", "INVALID_REQUEST", "rows/two"]
    assert first.endswith(f"{two['fingerprint']}  {RAISED}: bad row 7")
    assert second.endswith("bad row 11")
    assert "perdure dead show" in hint
    last = archive("dead", "groups", "--run", "march").splitlines()[-1]
    way = "to try them again: its `perdure run` with --retry-failed, or perdure dead redrive --run march"
    assert last.startswith(way)
    assert archive("dead", "groups", "--text", "nothing like it").startswith("no dead letters with")


def test_one_is_shown_with_its_item_its_reason_its_attempts_and_its_captures(archive):
    (job,) = archive.json("dead", "list", "--text", "row 7")
    said = archive("dead", "show", job["id"])
    assert archive("dead", "show", str(job["no"])) == said
    for words in (
        "failed (fatal)",
        "one attempt 1: success",
        "two attempt 1: failed",
        f"saw: {RAISED}: bad row 7",
        "this kind is not retried",
        "reason input_invalid INVALID_REQUEST: The item itself",
        f"detail {RAISED}: bad row 7",
        'item {"n":7}',
        "key 7",
        f"perdure dead retry {job['id']}",
        f"--fingerprint {job['fingerprint']}",
    ):
        assert words in said
    capture = re.search(r"capture (\S+) of two, token \d+: raw, 5 bytes", said)[1]
    assert archive("captures", "show", capture) == "raw 7"
    found = archive.json("dead", "show", job["id"])
    assert [one["status"] for one in found["attempts"]] == ["success", "failed"]
    assert found["attempts"][1]["why"]["text"].startswith("fail: input_invalid")
    assert [one["id"] for one in found["captures"]] == [capture]


def test_one_is_shown_by_a_key_that_only_one_job_has(office):
    with office.app.working(poll_s=0.05):
        job = office.pipe.enqueue({"n": 3}, key="i3")
        job.wait(wait_s=30)
    assert office("dead", "show", "i3") == office("dead", "show", job.id)


def test_what_is_no_dead_letter_is_not_shown_as_one(archive):
    done = archive.json("jobs", "list", "--state", "succeeded")[0]["id"]
    assert archive.error("dead", "show", done) == f"job {done} is succeeded, and no dead letter"
    assert "no job 'x'" in archive.error("dead", "show", "x")


def test_an_export_has_items_and_attempts(archive, tmp_path):
    path = tmp_path / "dead.jsonl"
    said = archive("dead", "export", "-o", str(path), "--kind", "input_invalid")
    assert said == f"2 dead letters in {path}\n"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["item"]["n"] for one in lines] == [7, 3]
    assert [one["status"] for one in lines[0]["attempts"]] == ["success", "failed"]
    hashes = [one["config_hash"] for one in lines[0]["attempts"]]
    assert len(set(hashes)) == 2
    assert hashes == [one["config_hash"] for one in lines[1]["attempts"]]
    shown = archive.json("jobs", "show", lines[0]["id"])
    assert [one["config_hash"] for one in shown["attempts"]] == hashes
    assert shown["updated_at"] == shown["finished_at"] == lines[0]["updated_at"]
    assert [path.name for path in tmp_path.iterdir()] == ["dead.jsonl"]
    assert archive("dead", "export").count("\n") == 3
    assert "cannot be written" in archive.error("dead", "export", "-o", str(tmp_path / "no" / "x"))


WRONG = [
    (("list", "--older-than", "soon"), "older_than is 'soon'; write a duration such as 30m, 2h or 3d"),
    (("list", "--older-than", "99999999999d"), "older_than is '99999999999d', which is longer ago than the year 1"),
    (("list", "--kind", ""), "kind is ''; one of: "),
    (("list", "--kind", "time_out"), "kind is 'time_out'; did you mean 'timeout'? One of: "),
    (("groups", "--kind", "banana"), "kind is 'banana'; one of: ambiguous, auth, "),
    (("export", "--kind", "typo"), "kind is 'typo'"),
    (("redrive", "--kind", "typo", "--yes"), "kind is 'typo'"),
    (("discard", "--kind", "typo", "--yes", "--reason", "x"), "kind is 'typo'"),
    (("list", "--pipeline", "row"), "this store has no pipeline 'row'; did you mean 'rows'?"),
    (("redrive", "--stage", "tow", "--yes"), "no stage 'tow'; did you mean 'two'? One of: one, two"),
    (("list", "--run", "may"), "no run 'may'; see: perdure runs list"),
    (("redrive", "--yes"), "say which dead letters: a filter such as --pipeline"),
    (("discard", "--yes", "--reason", "x"), "say which dead letters"),
    (("discard", "--all", "--yes", "--reason", " "), "the reason is blank"),
    (("redrive", "--all"), "nobody is there to answer; say --yes"),
    (("discard", "--all", "--reason", "x"), "nobody is there to answer; say --yes"),
    (("redrive", "--all", "--from-start", "--from-stage", "one"), "not both"),
    (("redrive", "--all", "--rate", "often"), "often"),
    (("retry", "x"), "no job 'x' in this store"),
    (("stop", "x"), "no bulk operation 'x'; see: perdure dead history"),
    (("continue", "x"), "no bulk operation 'x'"),
    (("history", "x"), "no bulk operation 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_what_cannot_be_done_is_refused_in_one_line(archive, words, said):
    told = archive.error("dead", *words)
    assert said in told
    assert "\n" not in told
    assert len(archive.ids()) == 3
    assert archive.json("dead", "history") == []


def test_discarding_without_a_reason_is_a_usage_error():
    done = CliRunner().invoke(cli, ["dead", "discard", "--kind", "internal"])
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)
    assert "Missing option '--reason'" in done.output


def test_a_preview_changes_nothing_and_says_what_it_did_not_ask(archive):
    said = archive(
        "dead", "redrive", "--run", "march", "--dry-run", "--canary", "1", "--rate", "9/s"
    )
    first, second, third, note = said.splitlines()
    assert first == "3 dead letters of pipeline rows"
    assert second.strip() == "3  eligible, at the stage where they failed"
    assert third.startswith("they are driven again in a run of their own, a child of run 'march'")
    assert third.endswith("1 first as a canary, at most 9/s")
    assert "to ask now: --app APP" in note
    found = archive.json("dead", "redrive", "--all", "--dry-run", "--from-start")
    assert (found["preview"]["count"], found["preview"]["eligible"], found["bulk"]) == (3, 3, None)
    assert "whether they can go on from there, too" in found["notes"]
    assert archive("dead", "redrive", "--kind", "timeout", "--yes") == (
        "no dead letters with kind 'timeout'\n"
    )
    assert archive.json("dead", "history") == []


# -- doing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_redrive_is_watched_to_its_end_and_its_parent_is_judged_anew(store, tmp_path, request):
    url = f"sqlite:///{tmp_path / 'work.db'}"
    if store == "postgres":
        url = request.getfixturevalue("furnished")
    with office_at(url, tmp_path) as office:
        office.feed()
        check_redrive(office)


def check_redrive(office: Office) -> None:
    office.mended.touch()
    with office.app.working():
        said = office(*ALL, "--run", "march", "--by", "bob", "--reason", "mended")
    assert "3 taken on, 0 left as they were; 3 succeeded, 0 failed again, 0 open\n" in said
    assert office("dead", "list") == "no dead letters\n"
    bulk = re.search(r"bulk operation (\S+), run 'redrive \1' \(number 2\)", said)[1]
    (kept,) = office.json("dead", "history")
    assert (kept["id"], kept["status"], kept["done"], kept["refused"]) == (bulk, "done", 3, 0)
    assert (kept["begun_by"], kept["reason"], kept["filter"]["run"]) == ("bob", "mended", 1)
    _, line = office("dead", "history").splitlines()
    assert line.split()[3:8] == ["redrive", "done", "3", "0", "bob"]
    assert office.json("runs", "show", "march")["status"] == "completed"
    assert office.json("runs", "show", "2")["parent"] == 1
    assert "driven again in run 2 (completed): 3 of 3 succeeded" in office("runs", "show", "1")
    assert office("audit").endswith("clean\n")


def test_what_fails_again_is_in_the_exit_status_and_a_canary_stops_the_rest(office):
    with office.app.working():
        said = office(*ALL, "--kind", "input_invalid", code=4)
        assert "2 taken on, 0 left as they were; 0 succeeded, 2 failed again" in said
        said = office(*ALL, "--canary", "1", code=5)
    assert "1 taken on, 0 left as they were; 0 succeeded, 1 failed again" in said
    assert "it was stopped: of the canary of 1, 0 succeeded" in said
    bulk = re.search(r"to go on where it stands: perdure dead continue (\S+)", said)[1]
    office.mended.touch()
    assert "goes on after 1" in office("dead", "continue", bulk, "--reason", "mended")
    with office.app.working():
        until(lambda: office.json("dead", "history", bulk)["status"] == "done", "it is done")
    assert numbers(office) == [11]  # the canary was the newest, and it has had its second chance


def test_what_cannot_be_driven_is_named_and_stays(office):
    office.mended.touch()
    office.gone.touch()
    with office.app.working():
        found = office.json(*ALL)
    (refusal,) = found["refusals"]
    assert (found["preview"]["eligible"], found["bulk"]["done"], found["bulk"]["refused"]) == (
        3,
        2,
        1,
    )
    assert refusal["why"] == "its source is gone"
    assert office.ids() == [refusal["job_id"]]
    shown = office("dead", "history", found["bulk"]["id"])
    assert f"  {refusal['job_id']}  its source is gone" in shown
    assert found["run"]["counts"]["succeeded"] == 2


def test_a_preview_with_an_app_asks_for_sources_and_knows_the_stages(office, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = module_in(tmp_path, office.url, "rows_of_dead")
    said = office("dead", "redrive", "--all", "--dry-run", "--app", name, "--from-start")
    assert "2  eligible, from the start" in said
    assert re.search(r"1  its source is gone, as \S+\n", said)
    assert "to ask now" not in said
    found = office.json("dead", "redrive", "--all", "--dry-run", "--app", name, "--from-stage", "x")
    assert found["preview"]["eligible"] == 0
    assert "has no stage 'x'; it has: one, two" in found["preview"]["refused"][0]["why"]
    told = office.error("dead", "retry", office.ids()[0], "--app", name)
    assert told.endswith("cannot be retried: its source is gone")
    wrong = module_in(tmp_path, f"sqlite:///{tmp_path / 'other.db'}", "rows_elsewhere")
    assert "leave one of them out" in office.error("dead", "retry", "1", "--app", wrong)
    assert not (tmp_path / "other.db").exists()


def test_a_key_that_is_alive_again_is_a_conflict_and_never_dropped(office):
    office.pipe.run([{"n": 7}], key="n", name="april", owner="ann")
    found = office.json("dead", "redrive", "--run", "march", "--dry-run")["preview"]
    assert (found["count"], found["eligible"]) == (3, 2)
    assert found["refused"][0]["why"] == "its key is alive again in another job"
    (job,) = office.json("dead", "list", "--text", "row 7")
    assert "its key '7' is alive again as job" in office.error("dead", "retry", job["id"])
    assert len(office.ids()) == 3


def test_without_a_worker_it_is_written_down_and_said_so(office):
    begun = office.run(*ALL, "--detach")
    assert begun.exit_code == 0
    assert "no worker is alive: nothing happens until one that has the pipeline" in begun.stderr
    bulk = re.search(r"to stop it: perdure dead stop (\S+)", begun.stdout)[1]
    assert office.json("dead", "history")[0]["status"] == "running"
    said = office("dead", "stop", bulk, "--reason", "not now")
    assert (
        said
        == f"stopped after 0; to go on where it stands: perdure dead continue {bulk} --store {office.url}\n"
    )
    assert "is stopped; only one that is running can be stopped" in office.error(
        "dead", "stop", bulk
    )
    office.mended.touch()
    again = office.run("dead", "continue", bulk)
    assert "no worker is alive" in again.stderr
    with office.app.working():
        until(lambda: not office.ids(), "no dead letter is left")
    assert office("audit").endswith("clean\n")


@pytest.mark.parametrize("option", ["--canary-share", "--failure-budget"])
def test_a_share_that_is_written_as_a_percentage_is_told_as_it_is_to_be(office, option):
    refused = office.run("dead", "redrive", "--all", option, "90%")
    assert refused.exit_code == 2
    assert f"'{option}': '90%' is a percentage; write the share: 0.9" in refused.stderr


def test_one_is_retried_at_the_stage_where_it_failed(office):
    id = office.ids()[0]
    said = office("dead", "retry", id, "--reason", "once more", "--by", "bob")
    assert said == f"{id} lives again: queued for stage two, life 2\n"
    told = office.error("dead", "retry", id)
    assert told == f"job {id} is queued; only a failed job can be retried"
    assert "is not in this app" in office.error("dead", "retry", office.ids()[0], "--from-start")
    (deed, *_) = office.app._session.opened.reader.deeds()
    assert (deed.by_whom, deed.reason) == ("bob", "once more")


def test_discarded_letters_leave_the_lists_and_stay_in_the_books(office):
    words = ("dead", "discard", "--kind", "input_invalid", "--reason", "test rows")
    assert office(*words, "--dry-run").splitlines()[0] == (
        "2 dead letters with kind 'input_invalid'"
    )
    assert len(office.ids()) == 3
    assert office(*words, "--yes").endswith("discarded 2\n")
    assert numbers(office) == [11]
    assert numbers(office, "--discarded") == [7, 3]
    assert "discarded 20" in office("dead", "show", office.ids("--discarded")[0])
    assert office(*words, "--yes") == "no dead letters are meant\n"
    assert office.json("dead", "discard", "--all", "--reason", "x", "--yes")["bulk"]["done"] == 1
    assert "failed 3 +" in office("audit")
    assert office.app._session.opened.reader.books().failed == len(BAD)


def test_dead_letters_of_two_pipelines_are_not_driven_together(office):
    @office.app.stage
    def other(item):
        raise StageError("input_invalid", "never")

    pipe = office.app.pipeline("more", other)
    with office.app.working():
        id = pipe.enqueue(1).id
        job = office.app._session.opened.reader.job
        until(lambda: job(id).state is State.FAILED, "it is dead, too")
    told = office.error(*ALL)
    assert told.startswith(
        "a re-drive is of one pipeline, and dead letters of several are meant (more, rows)"
    )


# -- on a terminal ---------------------------------------------------------------------------


def answered(command: list[str], answer: bytes) -> tuple[int, str]:
    """Exit status and standard output of a command that a person answers."""
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    done = subprocess.run(
        command,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    os.close(theirs)
    os.close(ours)
    return done.returncode, done.stdout.decode()


def test_on_a_terminal_one_is_asked_first(office):
    command = office.command("dead", "redrive", "--all", "--detach")
    status, said = answered(command, b"n\n")
    assert (status, said.splitlines()[-1]) == (1, "nothing was done")
    assert office.json("dead", "history") == []
    status, said = answered(command, b"y\n")
    assert status == 0
    assert office.json("dead", "history")[0]["id"] in said


def test_ctrl_c_ends_the_watching_and_not_the_operation(office):
    with subprocess.Popen(
        office.command(*ALL), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        until(lambda: office.json("dead", "history") != [], "it has begun")
        while not process.stderr.readline().startswith("0 of 3 taken on"):
            pass
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    (bulk,) = office.json("dead", "history")
    assert process.returncode == 130
    assert f"the operation goes on. To stop it: perdure dead stop {bulk['id']}" in said
    assert bulk["status"] == "running"
