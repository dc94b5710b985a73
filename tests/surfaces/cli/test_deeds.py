"""perdure jobs cancel, retry and run-now: one job or a filter, asked for first, with who and why."""

import json
import re
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from perdure import StageError
from perdure.model.states import FailedReason, State
from perdure.surfaces.cli.jobs import shown_at
from tests.engine.kit import until
from tests.surfaces.letters import module_in, office_at


@pytest.fixture
def fresh(tmp_path):
    """An office without any jobs."""
    with office_at(f"sqlite:///{tmp_path / 'work.db'}", tmp_path) as office:
        yield office


def put(office, *numbers, late=False, **options):
    run_at = datetime.now(UTC) + timedelta(hours=1) if late else None
    return [office.pipe.enqueue({"n": n}, run_at=run_at, **options).id for n in numbers]


def states(office, *ids):
    return [office.json("jobs", "show", id)["shown_state"] for id in ids]


def log(office):
    return [
        (one.by_whom, one.verb, one.reason) for one in office.app._session.opened.reader.deeds()
    ]  # newest first


# -- one ---------------------------------------------------------------------------------


def test_one_job_is_cancelled_with_who_and_why(fresh):
    (id,) = put(fresh, 1)
    said = fresh("jobs", "cancel", id, "--reason", "wrong file", "--by", "ann")
    assert said == f"{id} is cancelled: cancelled for stage one, life 1\n"
    assert log(fresh) == [("ann", "cancel job", "wrong file")]
    assert "already cancelled" in fresh.error("jobs", "cancel", id)


def test_one_job_is_named_by_its_key(fresh):
    id = fresh.pipe.enqueue({"n": 1}, key="order-7").id
    assert fresh("jobs", "cancel", "order-7").startswith(f"{id} is cancelled")


def test_one_job_is_run_now(fresh):
    (id,) = put(fresh, 1, late=True)
    assert states(fresh, id) == ["scheduled"]
    assert fresh.json("jobs", "run-now", id)["shown_state"] == "queued"
    assert "it is due already" in fresh.error("jobs", "run-now", id)


def test_what_is_due_and_stays_where_it_is_is_told_with_the_command_that_releases_it(fresh):
    (id,) = put(fresh, 1, late=True)
    fresh("queues", "pause", "default", "--reason", "lunch")
    stays = "  it stays queued, due or not: queue default is paused (to release it: perdure queues resume default"
    assert stays in fresh("jobs", "show", id)
    assert stays in fresh("jobs", "run-now", id)
    fresh("queues", "resume", "default")
    assert "it stays queued" not in fresh("jobs", "show", id)


def test_a_job_that_failed_and_stands_in_a_closed_lane_is_told_no_time(fresh):
    (id,) = put(fresh, 1)
    fresh("queues", "pause", "default", "--reason", "lunch")
    shown = fresh("jobs", "show", id)
    assert "  waits for stage one\n" in shown
    with sqlite3.connect(fresh.url.removeprefix("sqlite:///")) as file:
        file.execute("UPDATE perdure_jobs SET error_kind = 'auth', ready = 0")
    shown = fresh("jobs", "show", id)
    assert "  waits for stage one\n" in shown
    assert "stays queued, due or not, whatever an attempt says of its next try: queue" in shown
    assert "(to release it: perdure queues resume default" in shown


def test_a_job_that_has_expired_is_told_with_its_deadline(fresh):
    @fresh.app.stage
    def ask(item):
        raise StageError("network", "gone", wait_s=3_600)

    pipe = fresh.app.pipeline("asking", ask)
    late = pipe.enqueue(1, deadline_s=0.001, run_at=datetime.now(UTC))
    ahead = pipe.enqueue(2, deadline_s=600)
    with fresh.app.working(poll_s=0.02):
        ends = [one.wait(wait_s=30) for one in (late, ahead)]
    assert [one.failed_reason for one in ends] == [FailedReason.EXPIRED] * 2
    for one, words in zip(ends, ("passed", "would pass before the next try:"), strict=True):
        told = f"; its deadline {words} {shown_at(one.deadline_at)}\n"
        assert f"  failed {shown_at(one.finished_at)}{told}" in fresh("jobs", "show", one.id)
    (id,) = put(fresh, 1, deadline_s=600)
    fresh("jobs", "cancel", id)
    assert "deadline" not in fresh("jobs", "show", id)


def test_a_number_that_is_another_jobs_key_is_told(fresh):
    first, second = put(fresh, 1) + put(fresh, 2, key="1")
    shown = fresh("jobs", "show", "1")
    assert shown.startswith(f"job {first} (number 1)")
    assert f"the number 1; the one with the key 1: perdure jobs show {second}" in shown
    assert "with the key" not in fresh("jobs", "show", "2")


@pytest.mark.parametrize("owner", ["", "ann"])
def test_a_number_that_is_another_jobs_key_is_refused_before_a_deed(fresh, owner):
    first, second = put(fresh, 1, late=True, owner=owner) + put(fresh, 2, key="1", owner=owner)
    whose = ("--owner", owner) if owner else ()
    said = f"1 is the number of job {first} and the key of job {second}; name the one that is meant by its id"
    for verb in ("cancel", "retry", "run-now"):
        assert fresh.error("jobs", verb, "1", *whose) == said
        assert fresh.error("jobs", verb, "1", "--dry-run", *whose) == said
    assert owner or fresh.error("dead", "retry", "1") == said
    assert states(fresh, first, second) == ["scheduled", "queued"]
    fresh("jobs", "run-now", first, *whose)
    assert fresh("jobs", "cancel", "2", *whose).startswith(f"{second} is cancelled")
    assert states(fresh, first, second) == ["queued", "cancelled"]


def test_a_number_that_is_the_jobs_own_key_or_that_of_anothers_job_names_it(fresh):
    (own,) = put(fresh, 1, key="1")
    put(fresh, 2, key="1", owner="ann")
    assert fresh("jobs", "cancel", "1").startswith(f"{own} is cancelled")


def test_one_dead_letter_is_retried_with_a_corrected_item(office, tmp_path, monkeypatch):
    id = office.json("dead", "list")[0]["id"]
    file = tmp_path / "item.json"
    file.write_text('{"n": 100}')
    assert "name it: --app" in office.error("jobs", "retry", id, "--payload", str(file))
    monkeypatch.syspath_prepend(tmp_path)
    app = module_in(tmp_path, office.url, "rows_of_deeds")
    said = office("jobs", "retry", id, "--payload", str(file), "--app", app, "--by", "ann")
    assert said == f"{id} lives again: queued for stage one, life 2\n"
    shown = office.json("jobs", "show", id)
    assert shown["payload"] == {"n": 100}
    assert shown["payloads_before"] == [{"life": 1, "payload": {"n": 11}}]
    lines = office("jobs", "show", id)
    assert '  item {"n":100}\n' in lines
    assert '  payload until life 1: {"n":11}\n' in lines
    assert "  revive job by ann\n" in lines
    assert "; cost $0.2500; tokens 10 in, 2 out\n" in lines
    assert "  in all: cost $0.2500; tokens 10 in, 2 out\n" in lines
    file.write_text("{")
    words = ("jobs", "retry", id, "--payload", str(file), "--app", app)
    assert f"--payload: the file {file} is no JSON value" in office.error(*words)


def test_a_corrected_item_is_typed_read_from_a_file_or_from_standard_input(
    office, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    app = module_in(tmp_path, office.url, "rows_of_items")
    (tmp_path / "item.json").write_text('{"n": 100}')
    ids = [one["id"] for one in office.json("dead", "list")][:3]
    office("jobs", "retry", ids[0], "--payload", '{"n": 100}', "--app", app)
    office("jobs", "retry", ids[1], "--payload", "@item.json", "--app", app)
    office("jobs", "retry", ids[2], "--payload", "-", "--app", app, stdin='{"n": 100}')
    assert [office.json("jobs", "show", id)["payload"] for id in ids] == [{"n": 100}] * 3
    words = ("jobs", "retry", ids[0], "--app", app, "--payload")
    assert "'itm.json', which is no file here either, is no JSON" in office.error(
        *words, "itm.json"
    )
    assert "'{\"n\": 1'" in office.error(*words, '{"n": 1')
    assert "none.json cannot be read (No such file" in office.error(*words, "@none.json")
    assert "standard input is no JSON value" in office.error(*words, "-", stdin="{")


@pytest.mark.parametrize(("words", "state"), [([], "failed"), (["--if-failed", "retry"], "queued")])
def test_a_key_of_a_failed_job_gives_the_job_as_it_is_or_with_a_new_life(
    office, tmp_path, monkeypatch, words, state
):
    with office.app.working(poll_s=0.05):
        job = office.pipe.enqueue({"n": 3}, key="k")
        until(lambda: job.view().state is State.FAILED, "it has failed")
    monkeypatch.syspath_prepend(tmp_path)
    target = module_in(tmp_path, office.url, f"enqueueing_{state}") + ":rows"
    told = office("enqueue", target, '{"n": 3}', "--key", "k", *words)
    assert told.splitlines()[0] == job.id
    assert states(office, job.id) == [state]


def test_another_owners_job_is_as_one_that_never_was(office):
    id = office.json("dead", "list")[0]["id"]
    for verb in ("cancel", "retry", "run-now"):
        said = office.error("jobs", verb, id, "--owner", "bob")
        never = office.error("jobs", verb, "nobody", "--owner", "bob")
        assert said.replace(id, "nobody") == never
    assert office("jobs", "retry", id, "--owner", "ann").startswith(f"{id} lives again")


def test_a_dry_run_of_one_says_what_it_is_and_does_nothing(fresh):
    (id,) = put(fresh, 1)
    said = fresh("jobs", "cancel", id, "--dry-run")
    assert said == f"{id} would be cancelled: queued for stage one, life 1\n"
    assert states(fresh, id) == ["queued"]
    (late,) = put(fresh, 2, late=True)
    said = fresh("jobs", "run-now", late, "--dry-run")
    assert said == f"{late} would be due now: scheduled for stage one, life 1\n"
    assert states(fresh, late) == ["scheduled"]


def test_a_dry_run_of_one_that_would_be_refused_says_why(fresh):
    (id,) = put(fresh, 1)
    assert "cannot be run now: it is due already" in fresh.error("jobs", "run-now", id, "--dry-run")
    fresh("jobs", "cancel", id)
    assert "is already cancelled" in fresh.error("jobs", "cancel", id, "--dry-run")
    assert "it is cancelled" in fresh.error("jobs", "run-now", id, "--dry-run")


def test_a_dry_run_of_a_retry_checks_what_a_retry_would(office, fresh):
    id = office.json("dead", "list")[0]["id"]
    assert "would begin at stage" in office("jobs", "retry", id, "--dry-run")
    assert states(office, id) == ["failed"]
    (queued,) = put(fresh, 1)
    assert "is queued" in fresh.error("jobs", "retry", queued, "--dry-run")


# -- many --------------------------------------------------------------------------------


def test_jobs_are_cancelled_by_filter_after_a_preview(fresh):
    ids = put(fresh, 1, 2, owner="ann")
    (other,) = put(fresh, 3, owner="bob")
    assert fresh("jobs", "cancel", "--owner", "ann", "--dry-run") == "2 jobs with owner 'ann'\n"
    assert "say --yes" in fresh.error("jobs", "cancel", "--owner", "ann")
    said = fresh("jobs", "cancel", "--owner", "ann", "--yes", "--reason", "enough", "--by", "eve")
    assert said.startswith("2 jobs with owner 'ann'\nbulk operation ")
    assert re.search(rf"; see: perdure dead history \S+ --store {re.escape(fresh.url)}\n", said)
    assert "2 taken on, 0 left as they were" in said
    assert states(fresh, *ids, other) == ["cancelled", "cancelled", "queued"]
    assert log(fresh)[-1] == ("eve", "begin bulk cancel", "enough")
    assert fresh("jobs", "cancel", "--owner", "ann", "--yes") == "no open jobs with owner 'ann'\n"
    none = fresh("jobs", "run-now", "--owner", "ann", "--yes")
    assert none == "no waiting jobs with owner 'ann'\n"


def test_what_waits_is_run_now_by_filter_and_told_in_json(fresh):
    late, ready = put(fresh, 1, 2, late=True), put(fresh, 3)
    told = fresh.json("jobs", "run-now", "--pipeline", "rows", "--yes")
    assert told["preview"]["count"] == 2
    assert (told["bulk"]["verb"], told["bulk"]["done"], told["bulk"]["status"]) == (
        "run now",
        2,
        "done",
    )
    assert states(fresh, *late, *ready) == ["queued"] * 3


@pytest.mark.parametrize("state", ["scheduled", "retrying"])
def test_what_waits_is_run_now_by_the_state_that_is_shown(fresh, state):
    ids = put(fresh, 1, 2, late=True)
    with sqlite3.connect(fresh.url.removeprefix("sqlite:///")) as file:
        file.execute("UPDATE perdure_jobs SET error_kind = 'network' WHERE id = ?", ids[:1])
    assert states(fresh, *ids) == ["retrying", "scheduled"]
    words = ("jobs", "run-now", "--state", state)
    assert fresh(*words, "--dry-run") == f"1 job with state '{state}'\n"
    assert fresh.json(*words, "--yes")["bulk"]["done"] == 1
    left = {"scheduled": ["retrying", "queued"], "retrying": ["retrying", "scheduled"]}[state]
    assert states(fresh, *ids) == left
    assert fresh(*words, "--yes") == f"no waiting jobs with state '{state}'\n"
    assert fresh.run("jobs", "run-now", "--state", "processing").exit_code == 2


def test_dead_letters_are_retried_by_filter_with_payloads_by_key(office, tmp_path, monkeypatch):
    file = tmp_path / "fixed.jsonl"
    lines = [{"key": key, "payload": {"n": int(key) + 100}} for key in ("3", "11", "99")]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ("jobs", "retry", "--pipeline", "rows", "--owner", "ann", "--payloads", str(file))
    monkeypatch.syspath_prepend(tmp_path)
    app = module_in(tmp_path, office.url, "rows_of_many_deeds")
    assert office(*words, "--app", app, "--dry-run").splitlines() == [
        "2 dead letters of pipeline rows",
        "        2  eligible, with another item from the start",
        "        1  of the payloads are for no such dead letter:",
        "           99",
    ]
    told = office.json(*words, "--app", app, "--yes")
    assert (told["bulk"]["done"], told["bulk"]["verb"]) == (2, "retry")
    left = office.json("dead", "list")
    assert [one["payload"]["n"] for one in left] == [7]
    assert office.app._session.opened.reader.audit() == []


WRONG = [
    (("cancel",), "say which: a JOB, a filter such as --pipeline or --owner, or --all"),
    (("cancel", "17", "--pipeline", "rows"), "say either one JOB or a filter, not both: pipeline"),
    (("cancel", "17", "--all"), "not both: --all"),
    (("retry", "--all", "--payload", "-"), "--payload goes with one JOB"),
    (("retry", "17", "--payloads", "x"), "--payloads with a filter"),
    (("retry", "--all", "--payloads", "x"), "name it: --app module:variable"),
    (("retry", "17", "--from-start", "--from-stage", "one"), "no job '17'"),
    (("run-now", "--pipeline", "rowz"), "did you mean 'rows'"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_what_is_asked_for_wrongly_is_refused_with_a_remedy(fresh, words, said):
    fresh.app.ready()
    put(fresh, 1)
    assert said in fresh.error("jobs", *words)
