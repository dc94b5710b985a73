"""What the processes of a race write down, and what may not stand in it.

A hand is a process that claims and settles jobs. It appends to a ledger of its own: a job when its enqueue
was acknowledged, a claim before its job is begun, a settlement when its receipt has come, and a store that was
away. Each line has the
moments before and after the call, by the machine's monotonic clock, which all processes share: what the
store did, it did between the two. So a claim is too early for sure when it was in the hands of the next before
the one before had even asked to settle it. The checker reads nothing but ledgers.
"""

import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]

ENQUEUED, CLAIMED, SETTLED, AWAY = "enqueued", "claimed", "settled", "away"
SUCCEEDED, RETRIED, RELEASED = "succeeded", "retried", "released"


@dataclass(frozen=True, slots=True)
class Line:
    """One call and one job: what was asked for after ``asked_ns`` and known at ``known_ns``."""

    word: str
    asked_ns: int
    known_ns: int
    job: str
    token: int = 0
    ending: str = "-"
    hand: str = "-"

    def text(self) -> str:
        return (
            f"{self.word} {self.asked_ns} {self.known_ns} {self.job} {self.token} {self.ending}\n"
        )


class Pen:
    """Appends to one hand's ledger: each call is one write, and no call leaves half a line."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, lines: Iterable[Line]) -> None:
        text = "".join(line.text() for line in lines).encode()
        if text:
            os.write(self._file, text)


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def read(path: Path) -> list[Line]:
    """The whole lines of a ledger, so far; its name is the hand's."""
    text = path.read_text() if path.exists() else ""
    return [_line(one, path.stem) for one in text[: text.rfind("\n") + 1].splitlines()]


def faults(lines: Sequence[Line], jobs: Collection[str]) -> list[str]:
    """All that is wrong: jobs lost, claimed while unsettled, settled twice, by another, or after their end."""
    claims, settled = _by_job(lines, CLAIMED), _by_job(lines, SETTLED)
    found = [f"{job} was never handed out" for job in sorted(set(jobs) - set(claims))]
    found += [f"{job} is nobody's job" for job in sorted(set(claims) - set(jobs))]
    for job in sorted(set(claims) | set(settled)):
        found += _of_job(job, claims.get(job, []), settled.get(job, []))
    return found


def shares(lines: Sequence[Line]) -> dict[str, float]:
    """The part of all claims that each hand got."""
    counted = Counter(line.hand for line in lines if line.word == CLAIMED)
    return {hand: count / counted.total() for hand, count in counted.items()}


def _of_job(job: str, claims: list[Line], settled: list[Line]) -> list[str]:
    found = [
        f"{job} was handed out twice under token {token}, to {hands}"
        for token, hands in _twice(claims).items()
    ]
    found += [f"{job} was settled twice under token {token}" for token in _twice(settled)]
    ends = {line.token: line for line in settled}
    for claim in claims:
        end = ends.pop(claim.token, None)
        if end is None:
            found.append(f"{job} was lost: {claim.hand} never settled token {claim.token}")
        elif (end.hand, claim.known_ns <= end.asked_ns) != (claim.hand, True):
            found.append(
                f"{job} was settled under token {claim.token} by who did not hold it: {end.hand}"
            )
    found += [f"{job} was settled under token {token}, unclaimed" for token in sorted(ends)]
    return found + _in_turn(job, claims, {line.token: line for line in settled})


def _in_turn(job: str, claims: list[Line], ends: dict[int, Line]) -> list[str]:
    """Whether each claim came after the settlement of the one before, and the last one ended it."""
    found = []
    for earlier, later in pairwise(claims):
        end = ends.get(earlier.token)
        if end is None or end.asked_ns > later.known_ns:
            found.append(
                f"{job} was handed to {later.hand} under token {later.token} while {earlier.hand} "
                f"held it under token {earlier.token}"
            )
        elif end.ending not in (RETRIED, RELEASED):
            found.append(f"{job} was handed out under token {later.token} after it had ended")
    last = ends.get(claims[-1].token) if claims else None
    if last is not None and last.ending != SUCCEEDED:
        found.append(f"{job} never ended: it was {last.ending} under token {last.token}")
    return found


def _by_job(lines: Sequence[Line], word: str) -> dict[str, list[Line]]:
    """By job, in the order of tokens."""
    grouped: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.word == word:
            grouped[line.job].append(line)
    return {
        job: sorted(own, key=lambda line: (line.token, line.known_ns))
        for job, own in grouped.items()
    }


def _twice(lines: list[Line]) -> dict[int, list[str]]:
    hands: dict[int, list[str]] = defaultdict(list)
    for line in lines:
        hands[line.token].append(line.hand)
    return {token: held for token, held in hands.items() if len(held) > 1}


def _line(text: str, hand: str) -> Line:
    word, asked_ns, known_ns, job, token, ending = text.split()
    return Line(word, int(asked_ns), int(known_ns), job, int(token), ending, hand)


class Hands:
    """Processes that have begun, and their ledgers."""

    def __init__(self, ledgers: list[Path], processes: list[subprocess.Popen[str]]) -> None:
        self._ledgers = ledgers
        self._processes = processes

    def each(self) -> list[list[Line]]:
        """What each of them has written so far."""
        return [read(ledger) for ledger in self._ledgers]

    def heard(self, after_ns: int) -> list[list[int]]:
        """For each of them, the moments at which it was answered since."""
        return [
            [line.known_ns for line in own if line.known_ns > after_ns and line.word != AWAY]
            for own in self.each()
        ]

    def lines(self) -> list[Line]:
        """What all of them have written so far."""
        return [line for own in self.each() for line in own]

    def assert_working(self) -> None:
        """None of them has ended."""
        assert [one.poll() for one in self._processes] == [None] * len(self._processes)

    def finish(self, *, within_s: float) -> None:
        """Close their standard input, and wait until all have ended in peace."""
        give_up_at = time.monotonic() + within_s
        for one in self._processes:
            assert one.stdin is not None
            one.stdin.close()
        for one in self._processes:
            assert one.wait(give_up_at - time.monotonic()) == 0


@contextmanager
def working(
    folder: Path, url: str, seed: int, *, task: Literal["enqueue", "drain"], count: int = 2
) -> Iterator[Hands]:
    """Start so many hands on a store, let them begin at once, and end what is left of them."""
    ledgers = [folder / f"hand-{number}.ledger" for number in range(count)]
    with ExitStack() as ended:
        processes = []
        for number, ledger in enumerate(ledgers):
            words = [url, str(ledger), str(seed + number), task]
            one = subprocess.Popen(
                [sys.executable, "-m", "tests.stories.hand", *words],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            ended.enter_context(one)
            ended.callback(one.kill)
            processes.append(one)
        for one in processes:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in processes:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        yield Hands(ledgers, processes)
