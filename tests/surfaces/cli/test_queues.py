"""perdure queues and perdure schedules: what waits, what is paused, and what comes again."""

import shlex

from perdure.surfaces.cli import schedules
from tests.engine.kit import until
from tests.surfaces.letters import Office


def test_a_queue_is_listed_with_what_waits_in_it(archive):
    assert archive("queues", "list").splitlines()[1].split() == [
        "default",
        "0",
        "0",
        "rows",
        "open",
    ]
    (one,) = archive.json("queues", "list")
    assert (one["name"], one["pipelines"], one["says"]) == ("default", ["rows"], "open")


def test_a_paused_queue_says_since_when_by_whom_and_why_and_keeps_its_jobs(office: Office):
    said = office("queues", "pause", "default", "--reason", "moving house", "--by", "ann")
    assert said == (
        f"default: paused\n  to go on: perdure queues resume default --store {shlex.quote(office.url)}\n"
    )
    assert "it was paused already" in office("queues", "pause", "default")
    office.pipe.enqueue({"n": 1})
    line = office("queues", "list").splitlines()[1]
    assert "by ann (moving house)" in line
    (one,) = office.json("queues", "list")
    assert (one["ready"], one["paused_by"]) == (1, "ann")
    lanes = office.app._session.opened.reader.lanes()
    assert {lane.closed_by for lane in lanes if lane.lane.run is None} == {
        "queue default is paused"
    }
    assert office("queues", "resume", "default") == "default: open\n"
    assert office("queues", "resume", "default") == "default: it was not paused\n"
    assert [deed.verb for deed in office.app._session.opened.reader.deeds(limit=2)] == [
        "resume queue",
        "pause queue",
    ]


def test_a_queue_that_is_not_there_is_named_with_those_that_are(office: Office):
    told = office.error("queues", "pause", "defualt")
    assert told == "this store has no queue 'defualt'; did you mean 'default'? One of: default"


def test_schedules_are_listed_with_their_rule_and_next_moment(office: Office, monkeypatch):
    assert office("schedules", "list").startswith("no schedules: declare one with app.every")
    office.app.every("15m", office.pipe, {"n": 1})
    office.app.every(
        "0 7 * * 1-5", office.pipe, {"n": 2}, name="mornings", timezone="Europe/Berlin"
    )
    with office.app.working(poll_s=0.05):
        until(lambda: len(office.json("schedules", "list")) == 2, "a worker has written them down")
    told = office("schedules", "list")
    assert "rows      rows      every 15m" in told
    assert "mornings" in told
    assert "cron 0 7 * * 1-5 in Europe/Berlin" in told
    assert "never" in told
    one = next(one for one in office.json("schedules", "list") if one["name"] == "mornings")
    assert (one["payload"], one["ticks"], one["ticked_at"]) == ({"n": 2}, 0, None)
    assert "overdue" not in told
    monkeypatch.setattr(schedules, "_TICK_S_MAX", -7 * 86_400.0)  # as if it were a week later
    assert office("schedules", "list").count("Z overdue ") == 2
