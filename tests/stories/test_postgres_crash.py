"""PostgreSQL crashes again and again under load: nothing acknowledged is lost, nothing is settled twice.

The crash is `pg_ctl stop -m immediate`: every process of the server ends at once and the next start recovers
from its log, on a real disk with fsync on. That the disk keeps what was synced through a loss of power is not
shown here.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest

from perdure.engine.clock import SystemClock
from perdure.stores.opening import open_store
from tests.servers import programs
from tests.servers.postgres import Server
from tests.stories.hands import (
    AWAY,
    CLAIMED,
    ENQUEUED,
    RELEASED,
    SETTLED,
    SUCCEEDED,
    Hands,
    Line,
    faults,
    now_ns,
    working,
)
from tests.stories.kit import until

pytestmark = pytest.mark.story

STATUS = {"success": SUCCEEDED, "retrying": "retried", "interrupted": RELEASED}


@pytest.fixture
def server(missing: Callable[[str], NoReturn]) -> Iterator[Server]:
    """One of our own, on disk, whose syncs are real."""
    try:
        own = Server()
    except programs.MissingPart as part:
        missing(str(part))
    with own:
        with own.admin() as admin:
            assert admin.execute("SHOW fsync").fetchone() == ("on",)
            assert admin.execute("SHOW full_page_writes").fetchone() == ("on",)
        yield own


def crash(server: Server, hands: Hands, chance: random.Random) -> float:
    """Crash and restart once both are busy; how long until both were heard again, in seconds."""
    began_ns, wanted = now_ns(), chance.randint(40, 400)
    until(
        f"both have written {wanted} lines",
        lambda: min(map(len, hands.heard(began_ns))) > wanted,
        within_s=60,
    )
    server.stop("immediate")
    hands.assert_working()
    server.start()
    back_ns = now_ns()
    until("both are heard again", lambda: all(hands.heard(back_ns)), within_s=60)
    hands.assert_working()
    return (max(min(own) for own in hands.heard(back_ns)) - back_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Kept:
    """What the store has kept: jobs, and how each claim was settled."""

    states: dict[str, str]
    settled: dict[tuple[str, int], str]

    @classmethod
    def read(cls, url: str) -> "Kept":
        with psycopg.connect(url) as cx:
            jobs = cx.execute("SELECT id::text, state FROM perdure_jobs").fetchall()
            attempts = cx.execute(
                "SELECT j.id::text, a.token, a.status FROM perdure_attempts AS a "
                "JOIN perdure_jobs AS j ON j.no = a.job"
            ).fetchall()
        return cls(dict(jobs), {(job, token): STATUS[status] for job, token, status in attempts})


def differences(lines: Sequence[Line], kept: Kept) -> list[str]:
    """Where ledgers and store differ: what was acknowledged and is gone, and what nobody asked for."""
    jobs = {line.job for line in lines if line.word == ENQUEUED}
    ends = {(line.job, line.token): line.ending for line in lines if line.word == SETTLED}
    found = [f"{job} was accepted and is gone" for job in sorted(jobs - set(kept.states))]
    found += [f"{job} was never accepted" for job in sorted(set(kept.states) - jobs)]
    found += [
        f"{job} ended {ends[job, token]} under token {token}, the store says {kept.settled.get((job, token))}"
        for job, token in sorted(ends)
        if kept.settled.get((job, token)) != ends[job, token]
    ]
    found += [
        f"{job} has a settlement under token {token} of which nobody knows"
        for job, token in sorted(set(kept.settled) - set(ends))
    ]
    return found


def play(server: Server, folder: Path, *, crashes: int, seconds: float) -> None:
    seed = int(os.environ.get("PERDURE_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed} (PERDURE_SEED repeats the jobs, not the machine)")
    chance = random.Random(seed)
    url = server.create_database()
    over_at = time.monotonic() + seconds
    recoveries_s: list[float] = []
    with working(folder, url, seed + 1, task="enqueue") as hands:
        while len(recoveries_s) < crashes or time.monotonic() < over_at:
            recoveries_s.append(crash(server, hands, chance))
        hands.finish(within_s=60)
        lines = hands.lines()
    jobs = [line.job for line in lines if line.word == ENQUEUED]
    claims = sum(line.word == CLAIMED for line in lines)
    away = sum(line.word == AWAY for line in lines)
    print(f"FIGURE {len(jobs)} jobs, {claims} claims, {len(recoveries_s)} crashes under load")
    print(f"FIGURE calls that were not answered: {away}")
    print(f"FIGURE heard again after, in s: {', '.join(f'{one:.2f}' for one in recoveries_s)}")
    assert away >= 2 * crashes  # else no crash has struck
    assert faults(lines, jobs) == []
    assert differences(lines, Kept.read(url)) == []
    with closing(open_store(url, SystemClock(), create=False, wait_s_max=10.0)) as opened:
        books = opened.reader.books()
        assert (books.accepted, books.succeeded) == (len(set(jobs)), len(jobs))
        assert opened.reader.audit() == []


def test_two_crashes_of_the_server_under_load_lose_and_repeat_nothing(server, tmp_path):
    play(server, tmp_path, crashes=2, seconds=0)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_minute_of_crashes_of_the_server_under_load_loses_and_repeats_nothing(server, tmp_path):
    play(server, tmp_path, crashes=10, seconds=60)


# -- what the comparison sees ------------------------------------------------------------

LINES = [
    Line(ENQUEUED, 1, 2, "x"),
    Line(CLAIMED, 3, 4, "x", 1),
    Line(SETTLED, 5, 6, "x", 1, SUCCEEDED),
]
KEPT = Kept({"x": "succeeded"}, {("x", 1): SUCCEEDED})

DIFFERENT = {
    "an accepted job is gone": (Kept({}, KEPT.settled), "x was accepted and is gone"),
    "a job that nobody enqueued": (Kept(KEPT.states | {"y": "queued"}, KEPT.settled), "y was never"),
    "a settlement is gone": (Kept(KEPT.states, {}), "the store says None"),
    "a settlement became another": (Kept(KEPT.states, {("x", 1): RELEASED}), "says released"),
    "a second settlement": (Kept(KEPT.states, KEPT.settled | {("x", 3): SUCCEEDED}), "nobody knows"),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_planted_difference_is_found(what):
    kept, words = DIFFERENT[what]
    [found] = differences(LINES, kept)
    assert words in found


def test_a_store_that_has_kept_all_does_not_differ():
    assert differences(LINES, KEPT) == []
