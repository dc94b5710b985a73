"""Many users on a bad day: the gateway down twice, a worker killed, the database crashed; nothing is lost or shown wrongly.

The page is looked at all the while, in a real browser. Whatever it has shown of a file is compared afterwards with what the store
knows to have been so at that version; and what the API has told must be on the page, or something newer, when the page has asked
and heard three times since. That is counted in answers and not in seconds, so that a slow machine is no fault of the page's.
"""

import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

import httpx2
import psycopg
import pytest
from examples.converter.demo import FAULTS, BadDay, Ended

from tests.examples.converter_kit import pdf_of

pytestmark = pytest.mark.story

SHOWN = """() => [window.answers, [...document.querySelectorAll("#rows > tr")].map(
    (row) => [row.id.replace("job-", ""), row.dataset.version.split("/")[0], row.dataset.status, row.querySelector(".state").innerText])]"""
COUNT_ANSWERS = """window.answers = 0; const ask = window.fetch; window.fetch = async (...asked) => {
    const answer = await ask(...asked);
    if (String(asked[0]).startsWith("/queue") && answer.ok) window.answers += 1;
    return answer;
};"""
# A page asks again only when it has shown what it heard. Of three answers the first may have been asked for too early, the
# second was not, and the third was asked for when the second was shown.
ANSWERS = 3
WORDS = {
    "queued": "Queued",
    "processing": "Converting",
    "complete": "Complete",
    "failed": "Failed",
    "cancelled": "Cancelled",
}
STATES = {
    "processing": "processing",
    "complete": "complete",
    "failed": "failed",
    "expired": "failed",
}
FAR_MS = 600_000.0


Versions = dict[str, datetime]  # of jobs, by their ids


class Watch:
    """What pages have shown: of each job, at its version, the states; and what it was in the end."""

    def __init__(self) -> None:
        self.shown: dict[tuple[str, datetime], set[str]] = defaultdict(set)
        self.last: dict[str, str] = {}
        self.states: set[str] = set()
        self.compared = 0
        self.late: list[str] = []

    def look(self, page) -> tuple[int, Versions]:
        """How many answers the page has heard, and which version of each job it shows."""
        answers, rows = page.evaluate(SHOWN)
        versions = {job_id: datetime.fromisoformat(version) for job_id, version, _, _ in rows}
        for job_id, _, status, words in rows:
            assert words == WORDS[status]
            self.shown[job_id, versions[job_id]].add(status)
            self.last[job_id] = status
            self.states.add(status)
        return answers, versions


class Onlooker:
    """Somebody who asks the API, too, and wants to see on the page what it has told."""

    def __init__(self, chromium, site: str, client, watch: Watch) -> None:
        self._client, self._watch = client, watch
        window = chromium.new_context()
        window.set_default_timeout(FAR_MS)
        window.add_cookies(
            [{"name": n, "value": v, "url": site} for n, v in client.cookies.items()]
        )
        window.add_init_script(COUNT_ANSWERS)
        self.page = window.new_page()
        self.page.goto(site)
        self._asked_at = -1  # counted in answers, as all moments here
        self._told: list[tuple[int, Versions]] = []

    def look(self) -> None:
        """See whether what was told long enough ago is shown, and ask again when the page has."""
        answers, shown = self._watch.look(self.page)
        while self._told and self._told[0][0] + ANSWERS <= answers:
            _, told = self._told.pop(0)
            self._watch.compared += len(told)
            self._watch.late += [
                f"{job_id} was told at {version}, and is shown at {shown.get(job_id)}"
                for job_id, version in told.items()
                if job_id not in shown or shown[job_id] < version
            ]
        if answers > self._asked_at:
            self._ask()

    def _ask(self) -> None:
        told: Versions = {}
        with suppress(httpx2.TransportError):
            answer = self._client.get("/api/jobs")
            for job in answer.json()["jobs"] if answer.status_code == 200 else ():
                told[job["id"]] = datetime.fromisoformat(job["version"].split("/")[0])
        self._asked_at, _ = self._watch.look(self.page)
        self._told.append((self._asked_at, told))

    def look_on(self, compared: int) -> None:
        """Until so many versions more were compared; the page need not wait for its next turn to ask."""
        wanted = self._watch.compared + compared
        while self._watch.compared < wanted:
            self.look()
            self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


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


def watch_pages(chromium, day: BadDay, life: threading.Thread, watch: Watch) -> None:
    """Look at the pages of all users, from the first file to the end of the last; nobody reloads them."""
    onlookers = [Onlooker(chromium, day.site, one, watch) for one in day.clients]
    while not day.settled.is_set():
        assert life.is_alive(), "the day ended before all files had"
        for one in onlookers:
            one.look()
        onlookers[0].page.wait_for_timeout(200)
    for number, one in enumerate(onlookers):
        mine = sum(sent.user == number for sent in day.sent)
        one.page.get_by_text(f"{mine} in all, none in work", exact=True).wait_for()
        one.look_on(mine)
        one.page.context.close()


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


def assert_all_goes_well(chromium, day: BadDay) -> None:
    watch = Watch()
    # A page looks every two seconds, and would miss what is short.
    day.is_seen = lambda status: status in watch.states
    with living(day) as (lives, life):
        watch_pages(chromium, day, life, watch)
        assert wrongly_shown(day.database_url, watch) == []
        assert watch.late == []
    (ended,) = lives
    assert ended.complaints == []
    assert len(ended.files) == day.files
    assert all(ended.faults[kind] > 0 for kind in FAULTS), ended.faults
    assert watch.last == {sent.job_id: job["status"] for sent, job in ended.files}
    assert watch.states == set(WORDS) - {"cancelled"}


def test_a_state_that_a_file_did_not_have_would_be_noticed(quiet):
    job_id, watch = quiet.user().upload(pdf_of("noticed")), Watch()
    enqueued_at = quiet.job(job_id).view().enqueued_at
    watch.shown[job_id, enqueued_at] = {"queued"}
    assert wrongly_shown(quiet.database_url, watch) == []
    watch.shown[job_id, enqueued_at] = {"complete"}
    (line,) = wrongly_shown(quiet.database_url, watch)
    assert line.startswith(f"{job_id} was queued at ")


def test_a_page_that_stands_still_would_be_noticed(chromium, quiet):
    ann, watch = quiet.user(), Watch()
    job_id = ann.upload(pdf_of("still"))
    onlooker = Onlooker(chromium, quiet.site, ann, watch)
    page = onlooker.page

    onlooker.look_on(3)
    ann.delete(f"/api/jobs/{job_id}")
    page.get_by_text("Will not be converted").wait_for()
    onlooker.look_on(3)
    assert watch.late == []
    old = page.evaluate("fetch('/queue').then((answer) => answer.text())")
    page.route("**/queue?*", lambda route: route.fulfill(body=old, content_type="text/html"))
    ann.upload(pdf_of("moves on"))
    onlooker.look_on(8)
    page.context.close()
    assert watch.late


@pytest.mark.timeout(300)
def test_a_few_users_on_a_bad_day(chromium, tmp_path):
    day = BadDay(users=2, files=16, folder=tmp_path)
    assert_all_goes_well(chromium, day)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_twenty_users_with_five_hundred_files_on_a_bad_day(chromium, tmp_path):
    day = BadDay(users=20, files=500, folder=tmp_path)
    assert_all_goes_well(chromium, day)
