"""What the log and the metrics say of a run: every event with its fields, every story told apart, every number that of the
store's rows, and no secret.

The run is real: calls behind gates to servers that misbehave, a worker inside this process, and people who cancel, retry,
discard and hold. `tests/demo/test_log_and_metrics.py` does the same with the demo, whose workers crash and are killed.
"""

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from perdure import App, Backoff, GateSettings, Item, Jitter, PaceSettings, StageError
from perdure.app.surface import gate_control
from perdure.demo.client import post
from perdure.engine.observe import Observers
from perdure.http import asgi
from perdure.model.errors import StoreError
from perdure.model.events import EVENTS, EventName
from perdure.model.nouns import replace
from perdure.model.states import TERMINAL
from perdure.observers.event_lines import JsonFormatter, TextFormatter
from perdure.observers.log import log_event
from perdure.observers.log_queue import LogQueue, LogStream
from perdure.rules.policy import Policy
from perdure.rules.presets import preset
from perdure.rules.vocabulary import CONVERTER
from perdure.testing.upstream import Answer, Upstream
from tests.app.rows_of_run import (
    Rows,
    check_figures,
    check_gate,
    check_lines,
    check_scrape,
    check_shares,
    figures_in,
    figures_of,
)
from tests.engine.kit import until
from tests.observers.scraping import Scraped
from tests.stores.kit import file_in, furnished
from tests.surfaces.http.conftest import bearer

QUICK: Policy = replace(
    preset("standard"),
    attempts_max=3,
    backoff=Backoff("fixed", base_s=0.02),
    jitter=Jitter("none"),
    weak_share=None,
    vocabulary=CONVERTER,
)
GATE = GateSettings(pace=PaceSettings(start_calls=16))
UPSTREAMS = {("calls", "ask"): "vendor", ("orders", "ask"): "limiter"}

# Each stands where a secret, an item or an upstream's answer would.
CANARIES = {
    "item": "canary-item-5kLm",
    "result": "canary-result-8QwE",
    "body": "canary-body-2ZxC",
    "header": "canary-header-9TyU",
    "key": "sk-canary7QpLs0mVn3XzWtYb8",
    "detail": "canary-detail-4BnM",
    "capture": "canary-capture-6HjK",
    "password": "canary-password-1AsD",
    "job key": "canary-job-key-3FgH",
}


class Said:
    """What the log has written, in both forms."""

    def __init__(self, machine: str, people: str) -> None:
        self.text = machine + people
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in machine.splitlines()]
        self.words = people.splitlines()

    def of(self, job: str, *, loud: bool = False) -> list[dict[str, Any]]:
        """What was said of a job, or only what is said at the usual level."""
        found = [line for line in self.lines if line.get("job_id") == job]
        return [line for line in found if line["level"] != "debug" or not loud]

    def named(self, name: EventName) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == name.value]


@pytest.fixture
def both(log) -> tuple[io.StringIO, io.StringIO]:
    """The log at its loudest, as JSON and as text."""
    machine, people = io.StringIO(), io.StringIO()
    log.handlers[:] = [
        LogQueue(LogStream(machine), JsonFormatter()),
        LogQueue(LogStream(people), TextFormatter(), sums_up=True),
    ]
    log.setLevel(logging.DEBUG)
    log.propagate = False
    return machine, people


def ask(item, context):
    """Does what its item says."""
    context.capture(CANARIES["capture"])
    context.progress(1, 2, note="half")
    if item.get("wrong"):
        raise StageError("invalid_request", f"key={CANARIES['key']} {CANARIES['detail']}")
    return {**post(item["url"], item, timeout_s=60), "result": CANARIES["result"]}


def ask_limiter(item, context):
    return ask(item, context)


def tidy(item):
    return item


class Play:
    """The run: which job meets what."""

    def __init__(self, app: App, stack: ExitStack) -> None:
        app.upstream("vendor", gate=GATE)
        staged = app.stage(upstream="vendor", policy=QUICK)(ask)
        self.pipe = app.pipeline("calls", staged, app.stage(policy=QUICK)(tidy))
        app.upstream("limiter", gate=GATE)  # of its own: its hints hold nobody else
        limited = app.stage(name="ask", upstream="limiter", policy=QUICK)(ask_limiter)
        self.limited = app.pipeline("orders", limited, tidy)
        down = Answer(502, CANARIES["body"], {"x-api-key": CANARIES["header"]})
        limit = Answer(429, CANARIES["body"], {"retry-after-ms": "150"})
        good = Answer(200, {"total": 1, "body": CANARIES["body"]})
        self.urls = {
            name: self._served(stack, *answers)
            for name, answers in {
                "well": [good],
                "once down": [down, good],
                "down": [down],
                "limited": [limit, good],
            }.items()
        }
        self.jobs = {name: self._put(name, url=url).id for name, url in self.urls.items()}
        self.jobs["wrong"] = self._put("wrong", wrong=True).id
        self.jobs["late"] = self._put("late", url=self.urls["well"], deadline_s=0.001).id
        later = datetime.now(UTC) + timedelta(hours=1)
        self.waits = [
            self._put(name, url=self.urls["well"], run_at=later) for name in ("one", "two")
        ]

    def _served(self, stack: ExitStack, *answers: Answer) -> str:
        upstream = stack.enter_context(Upstream())
        upstream.script(*answers)
        return upstream.url

    def _put(self, name: str, *, run_at=None, deadline_s=None, **item: Any):
        pipe = self.limited if name == "limited" else self.pipe
        return pipe.enqueue(
            {**item, "item": CANARIES["item"]},
            owner="acme",
            request_id=f"req-{name.replace(' ', '-')}",
            key=f"{CANARIES['job key']}-{name}",
            run_at=run_at,
            deadline_s=deadline_s,
        )

    def play(self, app: App) -> None:
        """Work it all off, with people in between."""
        item = Item({"url": self.urls["well"], "item": CANARIES["item"]}, request_id="req-run")
        with app.working(concurrency=16):
            self.run = self.pipe.run([item], name="april", owner="acme")
            jobs = [app.job(id) for id in self.jobs.values()]
            until(lambda: all(one.view().state in TERMINAL for one in jobs), "all have ended")
            self.run.wait(wait_s=60)
            self.waits[0].cancel(reason="not wanted", by="ann")
            self.waits[1].run_now(by="ann")
            app.job(self.jobs["wrong"]).retry(by="ann")
            jobs = [*self.waits, app.job(self.jobs["wrong"])]
            until(lambda: all(one.view().state in TERMINAL for one in jobs), "these have, too")
        app.dead.discard(every=True, reason="known", by="ann")
        gate_control.hold(
            app._session.opened, "vendor", by_whom="ann", reason="a bill", for_text=None
        )
        self._put("held", url=self.urls["well"])


@pytest.fixture
def play(tmp_path, both) -> Iterator[tuple[Play, Said, Rows, Scraped]]:
    with ExitStack() as stack:
        app = App(f"sqlite:///{furnished(file_in(tmp_path))}")
        stack.callback(app.close)
        scraper = TestClient(
            asgi(app, hosts=("testserver",)), headers=bearer(app, "read_all", owner="")
        )
        play = Play(app, stack)
        play.play(app)
        _tell_of_no_store()
        for one in logging.getLogger("perdure").handlers:
            one.flush()
        said = Said(*(stream.getvalue() for stream in both))
        yield play, said, Rows(app), Scraped(scraper.get("/metrics").text)


def _tell_of_no_store() -> None:
    """As a worker tells of a store that cannot be had, with a password in its address."""
    with pytest.raises(StoreError) as away:
        App(f"postgresql://ann:{CANARIES['password']}@127.0.0.1:1/none").ready()
    Observers([log_event]).store_is_away(away.value)


# What each event of the run has at least; all that it may have stands in the table of events.
WHOSE = {"job_id", "request_id", "owner", "pipeline"}
AT_WORK = WHOSE | {"worker", "status", "stage", "attempt"}
JUDGED = AT_WORK | {
    "attempts_max", "duration_ms", "error_kind", "error_code", "error_message", "gate_state", "raised", "failures",
    "upstream",
}  # fmt: skip
HAS = {
    EventName.JOB_ENQUEUED: WHOSE | {"count"},
    EventName.JOB_CLAIMED: AT_WORK | {"token"},
    EventName.JOB_PROGRESSED: WHOSE | {"stage", "attempt", "done", "total", "note"},
    EventName.JOB_ADVANCED: AT_WORK | {"duration_ms", "upstream"},
    EventName.JOB_RETRIED: JUDGED | {"delay_ms", "hinted", "upstream_status"},
    EventName.JOB_SUCCEEDED: AT_WORK | {"duration_ms"},
    EventName.JOB_FAILED: JUDGED | {"reason"},
    EventName.JOB_CANCELLED: WHOSE | {"status", "stage"},
    EventName.JOB_REVIVED: {"job_id", "request_id", "owner", "stage", "by_whom"},
    EventName.JOB_DISCARDED: {"job_id", "request_id", "owner", "by_whom", "reason"},
    EventName.JOB_BROUGHT_FORWARD: {"job_id", "request_id", "owner", "by_whom"},
    EventName.WORKER_STARTED: {"worker", "role", "pid"},
    EventName.WORKER_DRAINING: {"worker", "in_hand", "grace_s"},
    EventName.RUN_CHANGED: {"run", "run_id", "run_name", "pipeline", "status", "before", "total"},
    EventName.BULK_CHANGED: {"bulk_id", "verb", "status", "done", "refused"},
    EventName.STORE_AWAY: {"reason"},
}


EXPIRED = WHOSE | {"status", "stage", "reason", "error_kind", "error_code", "error_message"}
RARE = {  # as the moment has it
    EventName.JOB_PROGRESSED,
    EventName.GATE_CHANGED,
    EventName.GATE_PROBED,
    EventName.GATE_PACED,
    EventName.LOOP_BLOCKED,  # by a machine that stands still
    EventName.JOB_RELEASED,
}


def test_the_log_and_the_metrics_of_a_run_say_what_its_rows_do_and_no_secret(play):
    """R102 to R110, of one run."""
    played, said, rows, seen = play
    check_fields(said)
    check_stories(played, said)
    check_forms(said)
    check_lines(rows, said.lines)
    check_scrape(rows, seen)
    check_shares(rows, seen)
    counted = figures_of(rows, rows.tries, UPSTREAMS)
    check_figures(figures_in(seen, UPSTREAMS), counted, counted)
    check_gate(rows, seen, "vendor")
    assert hits(said.text) == hits(seen.text) == []
    check_that_a_lie_is_noticed(said, rows, seen)


def check_that_a_lie_is_noticed(said: Said, rows: Rows, seen: Scraped) -> None:
    """The broken twins: a retry that is not logged, one that is counted twice, a gate that takes a call too many."""
    retried = said.named(EventName.JOB_RETRIED)[0]
    with pytest.raises(AssertionError):
        check_lines(rows, [line for line in said.lines if line is not retried])
    counted = figures_of(rows, rows.tries, UPSTREAMS)
    for name, check in (
        ("perdure_retries_total", lambda lying: check_scrape(rows, lying)),
        (
            "perdure_upstream_call_seconds_count",
            lambda lying: check_figures(figures_in(lying, UPSTREAMS), counted, counted),
        ),
        ("perdure_gate_held_seconds", lambda lying: check_gate(rows, lying, "vendor")),
    ):
        lying = Scraped(seen.text)
        lying.values |= {one: value + 1 for one, value in seen.values.items() if one[0] == name}
        with pytest.raises(AssertionError):
            check(lying)


def check_fields(said: Said) -> None:
    named = {EventName(line["event"]): set[str]() for line in said.lines}
    assert set(named) - RARE == set(HAS) - RARE
    for line in said.lines:
        name = EventName(line["event"])
        fields = set(line) - {"time", "level", "event"}
        named = {CONVERTER.aliases.get(field) for field in EVENTS[name].fields}
        assert fields - named <= set(EVENTS[name].fields), line
        least = EXPIRED if line.get("reason") == "expired" else HAS.get(name, set())
        assert least <= fields, (name, least - fields)
        assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)


def check_stories(played: Play, said: Said) -> None:
    """First tries, retries, the last of them, a retry that succeeds: at the usual level (R108)."""

    def story(name: str) -> list[tuple[Any, ...]]:
        keys = ("level", "event", "stage", "attempt", "reason")
        return [
            tuple(line.get(key) for key in keys) for line in said.of(played.jobs[name], loud=True)
        ]

    retried = ("info", "job_retried", "ask", 1, None)
    assert story("well") == []
    assert (
        story("once down")
        == story("limited")
        == [
            retried,
            ("info", "job_claimed", "ask", 2, None),
            ("info", "job_advanced", "ask", 2, None),
        ]
    )
    assert story("down") == [
        retried,
        ("info", "job_claimed", "ask", 2, None),
        ("info", "job_retried", "ask", 2, None),
        ("info", "job_claimed", "ask", 3, None),
        ("warning", "job_failed", "ask", 3, "exhausted"),
        ("info", "job_discarded", None, None, "known"),
    ]
    assert [line[0::4] for line in story("late")] == [("warning", "expired"), ("info", "known")]
    assert [line[4] for line in story("wrong") if line[1] == "job_failed"] == ["fatal"] * 2
    first, *_ = said.of(played.jobs["down"], loud=True)
    worker = said.named(EventName.WORKER_STARTED)[0]["worker"]
    assert {name: first[name] for name in (*HAS[EventName.JOB_RETRIED], "request_id")} == {
        "job_id": played.jobs["down"],
        "request_id": "req-down",
        "owner": "acme",
        "pipeline": "calls",
        "worker": worker,
        "status": "queued",
        "stage": "ask",
        "attempt": 1,
        "failures": 1,
        "attempts_max": 3,
        "duration_ms": first["duration_ms"],
        "error_kind": "upstream_unavailable",
        "error_code": "GW_5XX",
        "error_message": first["error_message"],
        "raised": first["raised"],
        "upstream": "vendor",
        "upstream_status": 502,
        "gate_state": "flowing",
        "delay_ms": 20,
        "hinted": False,
    }
    assert first["gateway_status"] == 502  # the name of R104
    hinted = next(one for one in said.of(played.jobs["limited"]) if one["event"] == "job_retried")
    assert (hinted["hinted"], hinted["delay_ms"], hinted["error_code"]) == (True, 150, "GW_4XX")
    of_run = [line for line in said.lines if line.get("run") is not None]
    assert {line["run"] for line in of_run} == {played.run.no}
    assert {"run_changed", "job_claimed", "job_succeeded"} <= {line["event"] for line in of_run}
    assert {line["request_id"] for line in of_run if "job_id" in line} == {"req-run"}


LINE = re.compile(r"\d\d:\d\d:\d\d\.\d{3} (DEBUG|INFO|WARNING|ERROR) +(.+)")
SUM = re.compile(r"… and ([0-9,]+) more like it in the last second: (\w+) .*")


def check_forms(said: Said) -> None:
    """Every line for people is one of those for machines, and sums stand for the rest."""
    meant = [
        " ".join(
            [
                line["event"],
                *(
                    f"{name}={value}"
                    for name, value in line.items()
                    if name in EVENTS[EventName(line["event"])].fields  # and is no second name
                ),
            ]
        )
        for line in said.lines
    ]
    told = [LINE.fullmatch(line)[2] for line in said.words]
    sums = [found for line in told if (found := SUM.fullmatch(line))]
    whole = [line for line in told if not SUM.fullmatch(line)]
    assert set(whole) <= set(meant)
    assert len(whole) + sum(int(found[1].replace(",", "")) for found in sums) == len(meant)


HEAD = ("time", "level", "event")


def hits(text: str) -> list[str]:
    """The canaries that a text gives away."""
    return [name for name, canary in CANARIES.items() if canary in text]


def test_a_log_that_says_more_is_found_out(both):
    """The broken twin: an exception's words and its item, logged as any program would."""
    log = logging.getLogger("perdure")
    try:
        int(CANARIES["detail"])
    except ValueError:
        log.exception("item %s failed", {"item": CANARIES["item"]})
    for one in log.handlers:
        one.flush()
    assert hits(both[0].getvalue()) == hits(both[1].getvalue()) == ["item", "detail"]
