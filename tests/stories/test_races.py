"""Two processes race for the same jobs: by their own ledgers, no job is in two hands and none is lost."""

import os
import random
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from perdure.engine.clock import SystemClock
from perdure.engine.ids import Ids
from perdure.model.jobs import NewJob
from perdure.model.nouns import replace
from perdure.stores.opening import Opened, open_store
from tests.stories.hand import LANE, ending_of
from tests.stories.hands import (
    CLAIMED,
    RELEASED,
    RETRIED,
    SETTLED,
    SUCCEEDED,
    Line,
    faults,
    shares,
    working,
)

pytestmark = pytest.mark.story

SHARE_MIN = 0.1


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path) -> str:
    """Both stores."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'race.db'}"
    return request.getfixturevalue("furnished")


def prepared(opened: Opened, chance: random.Random, claims_min: int) -> list[str]:
    """As many jobs as will be claimed so many times, by the endings that their ids stand for."""
    ids = Ids(SystemClock(), chance)
    lane = opened.store.lanes([LANE])[LANE]
    jobs: list[NewJob] = []
    claims = 0
    while claims < claims_min:
        job = NewJob(ids.next(), LANE.pipeline, lane, LANE.stage, "{}")
        jobs.append(job)
        claims += claims_of(job.id)
    for start in range(0, len(jobs), 5000):
        opened.store.enqueue(jobs[start : start + 5000])
    return [job.id for job in jobs]


def claims_of(job: str) -> int:
    """How often a job is claimed; each claim and each settlement raises the token by one."""
    token = 1
    while ending_of(job, token) != SUCCEEDED:
        token += 2
    return (token + 1) // 2


def race(folder: Path, url: str, claims_min: int, *, within_s: float) -> None:
    seed = int(os.environ.get("PERDURE_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed} (PERDURE_SEED repeats the jobs, not the machine)")
    with closing(open_store(url, SystemClock(), create=True, wait_s_max=10.0)) as opened:
        jobs = prepared(opened, random.Random(seed), claims_min)
        began_at = time.monotonic()
        with working(folder, url, seed + 1, task="drain") as hands:
            hands.finish(within_s=within_s)
            lines = hands.lines()
        took_s = time.monotonic() - began_at
        claims = [line for line in lines if line.word == CLAIMED]
        got = {hand: round(share, 2) for hand, share in sorted(shares(lines).items())}
        print(f"FIGURE {len(claims)} claims of {len(jobs)} jobs in {took_s:.1f} s, shares {got}")
        assert faults(lines, jobs) == []
        assert len(claims) == sum(map(claims_of, jobs)) >= claims_min
        assert len(got) == 2
        assert min(got.values()) >= SHARE_MIN
        books = opened.reader.books()
        assert (books.accepted, books.succeeded) == (len(jobs), len(jobs))
        assert opened.reader.audit() == []


def test_two_processes_that_race_never_hold_the_same_job_and_lose_none(tmp_path, url):
    race(tmp_path, url, 4_000, within_s=60)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_processes_that_race_for_50_000_claims_never_hold_the_same_job(tmp_path, url):
    race(tmp_path, url, 50_000, within_s=500)


# -- what the checker sees ---------------------------------------------------------------


def held(
    job: str, token: int, from_ns: int, to_ns: int, hand: str = "a", ending: str = SUCCEEDED
) -> list[Line]:
    """A claim from one moment to another; calls take 2 ns."""
    return [
        Line(CLAIMED, from_ns - 2, from_ns, job, token, "-", hand),
        Line(SETTLED, to_ns, to_ns + 2, job, token, ending, hand),
    ]


GOOD = [
    *held("x", 1, 10, 20, "a", RETRIED),
    *held("x", 3, 21, 30, "b", RELEASED),  # known before the settlement's receipt had come
    *held("x", 5, 40, 50, "a"),
    *held("y", 1, 10, 60, "b"),
]


def test_a_race_in_order_has_no_faults():
    assert faults(GOOD, ["x", "y"]) == []
    assert shares(GOOD) == {"a": 0.5, "b": 0.5}


def changed(number: int, **changes: object) -> list[Line]:
    return [replace(line, **changes) if at == number else line for at, line in enumerate(GOOD)]


PLANTED: dict[str, tuple[Sequence[Line], str]] = {
    "in two hands at once": (
        changed(2, known_ns=19), "handed to b under token 3 while a held it under token 1",
    ),
    "handed out twice under one token": (
        [*GOOD, replace(GOOD[6], hand="a")], "handed out twice under token 1, to ['b', 'a']",
    ),
    "never settled": (GOOD[:7], "y was lost: b never settled token 1"),
    "never settled, then handed to another": (
        [GOOD[0], *GOOD[2:]], "handed to b under token 3 while a held it under token 1",
    ),
    "never handed out": (GOOD[:6], "y was never handed out"),
    "left waiting": (changed(5, ending=RETRIED), "x never ended: it was retried under token 5"),
    "refused": (changed(7, ending="Stale"), "y never ended: it was Stale under token 1"),
    "settled twice": ([*GOOD, GOOD[7]], "y was settled twice under token 1"),
    "settled by another": (changed(7, hand="a"), "by who did not hold it: a"),
    "settled before it was held": (changed(7, asked_ns=9), "by who did not hold it: b"),
    "settled, but never claimed": (
        [*GOOD, *held("x", 7, 70, 80)[1:]], "x was settled under token 7, unclaimed",
    ),
    "handed out after its end": (
        [*GOOD, *held("y", 3, 70, 80)], "y was handed out under token 3 after it had ended",
    ),
    "of nobody": ([*GOOD, *held("z", 1, 70, 80)], "z is nobody's job"),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_fault_is_found(what):
    lines, words = PLANTED[what]
    assert any(words in fault for fault in faults(lines, ["x", "y"]))


def test_a_hand_that_got_nearly_nothing_is_seen():
    lines = [line for no in range(19) for line in held(f"j{no}", 1, 10, 20)]
    assert shares([*lines, *held("k", 1, 10, 20, "b")])["b"] < SHARE_MIN
