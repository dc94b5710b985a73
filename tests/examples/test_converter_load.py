"""Many users on a bad day: the gateway down twice, a worker killed, the database crashed; nothing is lost or shown wrongly.

The page is looked at all the while, in a real browser. Whatever it has shown of a file is compared afterwards with what the store
knows to have been so at that moment.
"""

import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import psycopg
import pytest
from examples.converter.demo import FAULTS, BadDay, Ended

from tests.examples.converter_kit import pdf_of

pytestmark = pytest.mark.story

SHOWN = """() => [...document.querySelectorAll("#rows > tr")].map(
    (row) => [row.id.replace("job-", ""), row.dataset.version.split("/")[0], row.dataset.status, row.querySelector(".state").innerText])"""
WORDS = {"queued": "Queued", "processing": "Converting", "complete": "Complete", "failed": "Failed"}
STATES = {
    "processing": "processing",
    "complete": "complete",
    "failed": "failed",
    "expired": "failed",
}
FAR_MS = 600_000.0


class Watch:
    """What pages have shown: of each job, at its version, the states; and what it was in the end."""

    def __init__(self) -> None:
        self.shown: dict[tuple[str, datetime], set[str]] = defaultdict(set)
        self.last: dict[str, str] = {}
        self.states: set[str] = set()

    def look(self, page) -> None:
        for job_id, version, status, words in page.evaluate(SHOWN):
            assert words == WORDS[status]
            self.shown[job_id, datetime.fromisoformat(version)].add(status)
            self.last[job_id] = status
            self.states.add(status)


@contextmanager
def living(day: BadDay) -> Iterator[tuple[list[Ended], threading.Thread]]:
    """A bad day on a thread, with what it comes to; it comes down at the end of the block."""
    ended: list[Ended] = []
    day.may_end.clear()
    life = threading.Thread(target=lambda: ended.append(day.live()))
    life.start()
    try:
        while not day.begun.wait(0.1):
            assert life.is_alive(), "the day ended before it began"
        yield ended, life
    finally:
        day.may_end.set()
        life.join()


def watch_pages(chromium, day: BadDay, life: threading.Thread, watch: Watch, watched: int) -> None:
    """Look at the pages of some users, from the first file to the end of the last; nobody reloads them."""
    pages = []
    for client in day.clients[:watched]:
        window = chromium.new_context()
        window.set_default_timeout(FAR_MS)
        window.add_cookies(
            [{"name": n, "value": v, "url": day.site} for n, v in client.cookies.items()]
        )
        pages.append(window.new_page())
        pages[-1].goto(day.site)
    while not day.settled.is_set():
        assert life.is_alive(), "the day ended before all files had"
        for page in pages:
            watch.look(page)
        pages[0].wait_for_timeout(200)
    for number, page in enumerate(pages):
        mine = sum(sent.user == number for sent in day.sent)
        page.get_by_text(f"{mine} in all, none in work", exact=True).wait_for()
        watch.look(page)
        page.context.close()


def history_of(cursor: psycopg.Cursor, job_id: str) -> tuple[list[datetime], list[str]]:
    """When the job came into which state."""
    rows = cursor.execute(
        "SELECT at, event FROM perdure_job_events WHERE job_id = %s ORDER BY at_us", (job_id,)
    ).fetchall()
    return [at for at, _ in rows], [STATES.get(event, "queued") for _, event in rows]


def wrongly_shown(database_url: str, watch: Watch) -> list[str]:
    """What was shown of a job at a moment at which it was something else."""
    found = []
    with psycopg.connect(database_url) as cx, cx.cursor() as cursor:
        for (job_id, at), states in watch.shown.items():
            moments, was = history_of(cursor, job_id)
            truth = was[bisect_right(moments, at) - 1]
            if states != {truth}:
                found.append(f"{job_id} was {truth} at {at}, and shown as {states}")
    return found


def assert_all_goes_well(chromium, day: BadDay, *, watched: int) -> None:
    watch = Watch()
    if watched == day.users:  # a page looks every two seconds, and would miss what is short
        day.is_seen = lambda status: status in watch.states
    with living(day) as (lives, life):
        watch_pages(chromium, day, life, watch, watched)
        assert wrongly_shown(day.database_url, watch) == []
    (ended,) = lives
    assert ended.complaints == []
    assert len(ended.files) == day.files
    assert all(ended.faults[kind] > 0 for kind in FAULTS), ended.faults
    assert watch.last == {
        sent.job_id: job["status"] for sent, job in ended.files if sent.user < watched
    }
    assert watch.states == set(WORDS)


def test_a_state_that_a_file_did_not_have_would_be_noticed(quiet):
    job_id, watch = quiet.user().upload(pdf_of("noticed")), Watch()
    enqueued_at = quiet.job(job_id).view().enqueued_at
    watch.shown[job_id, enqueued_at] = {"queued"}
    assert wrongly_shown(quiet.database_url, watch) == []
    watch.shown[job_id, enqueued_at] = {"complete"}
    (line,) = wrongly_shown(quiet.database_url, watch)
    assert line.startswith(f"{job_id} was queued at ")


@pytest.mark.timeout(300)
def test_a_few_users_on_a_bad_day(chromium, tmp_path):
    day = BadDay(users=2, files=16, folder=tmp_path)
    assert_all_goes_well(chromium, day, watched=2)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_twenty_users_with_five_hundred_files_on_a_bad_day(chromium, tmp_path):
    day = BadDay(users=20, files=500, folder=tmp_path)
    assert_all_goes_well(chromium, day, watched=10)
