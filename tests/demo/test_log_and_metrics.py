"""What the logs and the metrics of a whole tour say: its workers are processes of their own, one is killed with SIGKILL, one
item kills whatever it runs in, calls hang; every line and every number is that of the store's rows, and no secret is told.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.app.surface import gate_control
from perdure.demo import stages
from perdure.demo.crew import DemoWorker
from perdure.demo.script import Fault
from perdure.demo.tour import TourOrder, TourSnapshot, give_tour
from perdure.demo.upstream import bad_answer, invoice_text
from perdure.demo.watch import belongs, killed_by_item, went_silent
from perdure.model.events import EVENTS, EventName
from tests.app.rows_of_run import (
    RESULTS,
    Rows,
    ToldEnd,
    check_figures,
    check_gate,
    check_lines,
    check_scrape,
    end_of,
    figures_in,
    figures_of,
)
from tests.demo.kit import swept, until
from tests.observers.scraping import Scraped, scrape

pytestmark = pytest.mark.story

CLI = (sys.executable, "-m", "perdure.surfaces.cli")
WORKER = (*CLI, "worker", "--log-level", "debug", "--metrics-port", "0")
UPSTREAMS = {(stages.PIPELINE, "fetch"): stages.ARCHIVE}
ITEMS = 30
KEY = "sk-canary7QpLs0mVn3XzWtYb8"  # stands in the environment of every worker

Line = dict[str, Any]


def lines_of(worker: DemoWorker) -> list[Line]:
    whole = worker.log.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def ends_in(lines: list[Line]) -> Counter[ToldEnd]:
    return Counter(end_of(one) for one in lines if one["event"] in RESULTS and "duration_ms" in one)


class Watched:
    """A tour whose workers log all they do and serve their metrics, which are read when all items have ended."""

    def __init__(self, folder: Path) -> None:
        self.order = TourOrder(items=ITEMS, seed=4, folder=folder, command=WORKER)
        self.workers: tuple[DemoWorker, ...] = ()
        self.scrapes: dict[str, Scraped] = {}
        self.told: dict[str, Counter[ToldEnd]] = {}
        self.app, self.pipeline = stages.declare(self.order.store)

    def __call__(self, shot: TourSnapshot) -> None:
        """Look on; the tour goes on, and ends its workers, when this returns."""
        self.workers = shot.crew
        if shot.look.settled < ITEMS:
            return
        rows = Rows(self.app)
        until("what has ended is told", lambda: not self._awaited(rows), within_s=60)
        for one in self.workers:
            self.told[one.name] = ends_in(lines_of(one))
            if not one.killed:
                self.scrapes[one.name] = scrape(_address(one))

    @property
    def killed(self) -> frozenset[int]:
        """The working processes that ended without leave."""
        found = self.app._session.opened.reader.workers()
        return frozenset(one.no for one in found if went_silent(one) or killed_by_item(one))

    @property
    def of_victim(self) -> frozenset[int]:
        """The working processes of the worker that was killed with SIGKILL."""
        found = self.app._session.opened.reader.workers()
        (victim,) = [one for one in self.workers if one.killed]
        return frozenset(one.no for one in found if belongs(one, victim))

    def _awaited(self, rows: Rows) -> list[ToldEnd]:
        """What a process that lives has yet to tell; the losses of a worker that went silent are told by one that lives."""
        workers, killed = self.app._session.opened.reader.workers(), self.killed
        silent = {one.no for one in workers if went_silent(one)}
        told = sum((ends_in(lines_of(one)) for one in self.workers), Counter[ToldEnd]())
        return [
            one
            for one in Counter(rows.ends()) - told
            if one.worker not in killed
            or (one.worker in silent and one.error_kind == "worker_lost")
        ]

    def lines(self) -> list[Line]:
        return [line for one in self.workers for line in lines_of(one)]

    def show_metrics(self) -> Scraped:
        """As an operator reads them when all workers are gone."""
        shown = (*CLI, "metrics", "show", "--store", self.order.store)
        said = subprocess.run(shown, capture_output=True, text=True, timeout=60, check=True)
        return Scraped(said.stdout)


def _address(worker: DemoWorker) -> str:
    """Where the log says that its metrics are."""

    def told() -> str:
        found = [one for one in lines_of(worker) if one["event"] == "metrics_served"]
        return found[0]["address"] if found else ""

    return until("the log names the port", told, within_s=60)


@pytest.fixture
def tour(tmp_path, monkeypatch) -> Iterator[Watched]:
    monkeypatch.setenv("UPSTREAM_API_KEY", KEY)
    watched = Watched(tmp_path)
    with swept(str(tmp_path)), closing(watched.app):
        summary = give_tour(watched.order, watched)
        assert summary.complaints == []
        yield watched


def test_the_logs_and_the_metrics_of_a_whole_tour_say_what_its_rows_do_and_no_secret(tour):
    """R102 to R110 of a run with every fault of the demo."""
    opened = tour.app._session.opened
    gate_control.hold(opened, stages.ARCHIVE, by_whom="ann", reason="a bill", for_text=None)
    tour.pipeline.enqueue({"invoice": 1})  # waits behind it
    lines, rows, seen = tour.lines(), Rows(tour.app), tour.show_metrics()
    check_fields(lines)
    check_levels(lines)
    check_deaths(tour, lines, rows)
    untold = check_lines(rows, lines, tour.killed)
    check_scrape(rows, seen)
    check_gate(rows, seen, stages.ARCHIVE)
    check_processes(tour, rows, untold)
    said = "".join(one.log.read_text() for one in tour.workers)
    assert hits(said + seen.text + "".join(one.text for one in tour.scrapes.values())) == []
    # The broken twins: what is secret was there to be told, and a line or a number that is wrong is noticed.
    stored = b"".join(one.read_bytes() for one in tour.order.folder.glob("demo.db*"))
    assert hits(stored.decode("latin-1")) != []
    check_that_a_lie_is_noticed(tour, lines, rows, seen)


TOLD = {"job_id", "request_id", "pipeline", "worker", "status", "stage", "attempt"}
JUDGED = TOLD | {"attempts_max", "duration_ms", "error_code", "error_kind", "error_message", "gate_state"}  # fmt: skip
HAS = {
    EventName.JOB_CLAIMED: TOLD,
    EventName.JOB_ADVANCED: TOLD | {"duration_ms"},
    EventName.JOB_SUCCEEDED: TOLD | {"duration_ms"},
    EventName.JOB_RETRIED: JUDGED | {"delay_ms", "hinted"},
    EventName.JOB_FAILED: JUDGED | {"reason"},
}


def check_fields(lines: list[Line]) -> None:
    """R104, R107, R109: each event has its fields, and none that is not in its row of the table."""
    assert {EventName(line["event"]) for line in lines} >= set(HAS)
    for line in lines:
        name = EventName(line["event"])
        least = HAS.get(name, set())
        if line.get("reason") == "crashed":  # crashes have a limit of their own
            least = least - {"attempts_max"}
        assert least <= set(line), line
        assert set(line) - {"time", "level", "event"} <= set(EVENTS[name].fields), line
        if name.value in RESULTS:
            assert line.get("upstream") == UPSTREAMS.get((line["pipeline"], line["stage"]))
        if line.get("error_kind") == "rate_limited":
            assert (line["upstream_status"], line["delay_ms"], line["hinted"]) == (429, 1000, True)
        if line.get("error_kind") == "upstream_unavailable":
            assert (line["upstream_status"], line["hinted"]) == (503, False)


def check_levels(lines: list[Line]) -> None:
    """R108: at the usual level stands a retry, the next try and its success, and the end of the tries; no first try does."""
    for line in lines:
        match line["event"]:
            case "job_claimed" | "job_advanced" | "job_succeeded":
                assert line["level"] == ("debug" if line["attempt"] == 1 else "info"), line
            case "job_retried":
                assert line["level"] == "info", line
            case "job_failed":
                assert line["level"] == "warning", line


def check_deaths(tour: Watched, lines: list[Line], rows: Rows) -> None:
    """The item that kills its process is told of as that, the worker that was killed as silent; calls have hung."""
    failed = [line for line in lines if line["event"] == "job_failed"]
    reasons = Counter((line["reason"], line["error_kind"]) for line in failed)
    assert reasons == {("fatal", "invalid_request"): 2, ("crashed", "worker_lost"): 1}
    (poison,) = [line["job_id"] for line in failed if line["reason"] == "crashed"]
    assert sum(job.id == poison and one.kind == "worker_lost" for job, one in rows.tries) == 3
    lost = [line for line in lines if line["event"] == "worker_lost"]
    told = {line["worker"] for line in lost}
    assert told <= tour.killed
    assert tour.killed - told <= tour.of_victim  # its supervisor may have had no time to tell
    assert any(line.get("exit") == stages.CRASH_STATUS for line in lost)
    assert any(line.get("why") == "silent" for line in lost)
    assert any(one.kind == "timeout" for _, one in rows.tries)


def check_processes(tour: Watched, rows: Rows, untold: Counter[ToldEnd]) -> None:
    """What a worker has counted is what its log tells, and at most what nobody tells besides."""
    tries = dict(zip(rows.ends(), rows.tries, strict=True))
    unsure = figures_of(rows, [tries[one] for one in untold], UPSTREAMS)
    assert len(tour.scrapes) == 2  # of three, one was killed
    for name, seen in tour.scrapes.items():
        told = figures_of(rows, [tries[one] for one in tour.told[name]], UPSTREAMS)
        check_figures(figures_in(seen, UPSTREAMS), told, told + unsure)
        (worker,) = [one for one in tour.workers if one.name == name]
        lost = [line for line in lines_of(worker) if line["event"] == "worker_lost"]
        silent = sum(line.get("why") == "silent" for line in lost)
        assert seen("perdure_workers_lost_total", cause="silent") == silent
        assert seen("perdure_workers_lost_total", cause="ended") == len(lost) - silent
        assert seen("perdure_results_refused_total", cause="stale") == 0
        assert seen("perdure_store_up") == 1


def check_that_a_lie_is_noticed(
    tour: Watched, lines: list[Line], rows: Rows, seen: Scraped
) -> None:
    living = next(
        one for one in lines if one["event"] == "job_retried" and one["worker"] not in tour.killed
    )
    with pytest.raises(AssertionError):
        check_lines(rows, [line for line in lines if line is not living], tour.killed)
    with pytest.raises(AssertionError):
        check_lines(rows, [*lines, living], tour.killed)
    lying = Scraped(seen.text)
    name = "perdure_retries_total"
    lying.values |= {one: value + 1 for one, value in seen.values.items() if one[0] == name}
    with pytest.raises(AssertionError):
        check_scrape(rows, lying)


def hits(text: str) -> list[str]:
    """What is of the items, of the upstream's answers, or secret, and stands in a text."""
    faults = (Fault.RATE_LIMIT, Fault.UNAVAILABLE, Fault.REFUSED, Fault.MALFORMED)
    bodies = [bad_answer(one, item).body.decode() for one in faults for item in range(1, 5)]
    texts = [invoice_text(item).partition(". Total")[0] for item in range(1, ITEMS + 1)]
    return [one for one in (KEY, *bodies, *texts) if one in text]
