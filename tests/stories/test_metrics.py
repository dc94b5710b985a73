"""A worker's port for metrics: whatever dies behind it, it answers, and no counter falls."""

import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter

import pytest

from tests.observers.scraping import Scraped, scrape
from tests.stories.kit import Story, WorkerProcess, on_both_long, processes, until

pytestmark = pytest.mark.story

GATED = {"work": {"until": "go"}}
QUICK = {"work": {}}


def address_of(worker: WorkerProcess) -> str:
    """Where the log says that its metrics are."""

    def told() -> str:
        found = re.search(r"metrics_served address=(\S+)", worker.log.read_text())
        return found[1] if found else ""

    return until("the log names the port", told, within_s=60)


def answering(worker: WorkerProcess) -> int:
    """The process that answers at its port."""

    def found() -> list[int]:
        return [
            one.pid
            for one in processes()
            if one.parent == worker.pid and "perdure.app.worker.metrics_main" in one.command
        ]

    return until("somebody answers at the port", found, within_s=60)[0]


class Looking:
    """Scrapes again and again, and sees that nothing has fallen."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._address = address_of(worker)
        self.last = scrape(self._address)

    def __call__(self) -> Scraped:
        seen = scrape(self._address)
        assert seen.fallen_since(self.last) == []
        self.last = seen
        return seen


def attempts(seen: Scraped) -> Counter[str]:
    """Attempts by result, as all processes of the worker have counted them."""
    found: Counter[str] = Counter()
    for one in seen.labels("perdure_attempt_seconds_count"):
        found[one["result"]] += int(seen("perdure_attempt_seconds_count", **one))
    return found


@on_both_long
def test_children_and_the_one_who_answers_are_killed_and_the_numbers_stay(story: Story):
    worker = story.worker("a", concurrency=2, options=["--processes", "2", "--metrics-port", "0"])
    look = Looking(worker)
    story.enqueue("walk", [QUICK] * 6)
    story.all_ended(within_s=60)
    until("all is counted", lambda: attempts(look()) == {"succeeded": 18}, within_s=60)
    assert (
        look.last("perdure_jobs_ended_total", pipeline="walk", stage="finish", state="succeeded")
        == 6
    )
    assert look.last("perdure_workers", role="main") == 2

    (struck,) = story.enqueue("walk", [GATED])
    story.started(struck, "work")
    holder = story.job(struck)["worker"]
    (child,) = [one for one in worker.children("main") if one.worker == holder]
    os.kill(child.pid, signal.SIGKILL)
    until(
        "its loss is told",
        lambda: look()("perdure_workers_lost_total", cause="ended") == 1,
        within_s=60,
    )
    story.started(struck, "work", times=2)  # in the child for suspects
    until(
        "a suspects' child is told",
        lambda: look()("perdure_workers", role="suspects") == 1,
        within_s=60,
    )

    os.kill(answering(worker), signal.SIGKILL)
    look()  # waits in the line of the socket for the next one
    story.open_gate("go")
    story.all_ended(within_s=60)
    done = {"succeeded": 21, "retried": 1}
    until("what came after is counted, too", lambda: attempts(look()) == done, within_s=60)
    seen = look.last
    assert seen.total("perdure_attempt_failures_total", kind="worker_lost") == 1
    assert seen("perdure_time_to_success_seconds_count", pipeline="walk") == 7
    assert seen.total("perdure_attempts_total") == 22
    assert seen("perdure_results_refused_total", cause="stale") == 0
    assert seen("perdure_events_total", event="worker_started") == 4

    pid = answering(worker)
    worker.kill(signal.SIGTERM)
    assert worker.exit_status(within_s=60) == 0
    until(
        "nobody answers any more", lambda: pid not in {one.pid for one in processes()}, within_s=30
    )
    story.assert_audit_is_clean()


def test_a_port_that_is_taken_ends_the_worker_with_one_line(story: Story):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = story.perdure("worker", "work:app", "--metrics-port", port)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"perdure: cannot listen at --metrics-host 127.0.0.1 --metrics-port {port}: Address already in use; "
        "give another, or --metrics-port 0 for a free one\n"
    )


def test_the_end_of_the_supervisor_ends_the_one_who_answers(story: Story):
    worker = story.worker("a", options=["--metrics-port", "0"])
    address, pid = address_of(worker), answering(worker)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(address.removesuffix("/metrics") + "/", timeout=60)
    assert scrape(address)("perdure_store_up") == 1
    worker.kill(signal.SIGKILL)
    until("it has left", lambda: pid not in {one.pid for one in processes()}, within_s=30)
