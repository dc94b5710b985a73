"""Reading the stages' own ledger, and what may not stand in it."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a stage of a job began or ended under a token."""

    at_s: float  # monotonic, the same for all processes of the machine
    pid: int
    job: str
    stage: str
    token: int
    event: str


@dataclass(frozen=True, slots=True)
class Success:
    """A success that the store has committed, by the machine's monotonic clock."""

    job: str
    stage: str
    token: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """Everything the stages have written down, in the order in which it was written."""

    entries: tuple[Entry, ...]

    @staticmethod
    def read(file: Path) -> "Ledger":
        """The whole lines of a ledger; a missing one is empty."""
        text = file.read_text() if file.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        return Ledger(tuple(_entry(line) for line in whole.splitlines()))

    def of(self, job: str, stage: str, event: str) -> list[Entry]:
        """The events of one stage of one job."""
        return [
            one
            for one in self.entries
            if one.job == job and one.stage == stage and one.event == event
        ]

    def pids(self, job: str, stage: str) -> list[int]:
        """Which processes began this stage, in order."""
        return [one.pid for one in self.of(job, stage, "start")]


def reruns(ledger: Ledger, successes: Iterable[Success], *, slack_s: float = 0.02) -> list[str]:
    """Starts of a stage after its success was committed: by a later token, or simply later."""
    committed = {(one.job, one.stage): one for one in successes}
    found = []
    for entry in ledger.entries:
        success = committed.get((entry.job, entry.stage))
        if entry.event != "start" or success is None:
            continue
        if entry.token > success.token or entry.at_s > success.at_s + slack_s:
            found.append(
                f"job {entry.job} began stage {entry.stage} again under token {entry.token}, "
                f"{entry.at_s - success.at_s:+.3f} s from its commit under token {success.token}"
            )
    return found


def unfounded(ledger: Ledger, successes: Iterable[Success]) -> list[str]:
    """Committed successes for which no stage has written down an end."""
    ends = {(one.job, one.stage, one.token) for one in ledger.entries if one.event == "end"}
    return [
        f"job {one.job} has a success of stage {one.stage} under token {one.token}, "
        "and no stage says so"
        for one in successes
        if (one.job, one.stage, one.token) not in ends
    ]


def starts_per_stage(ledger: Ledger) -> dict[tuple[str, str], int]:
    """How often each stage of each job began."""
    counted: dict[tuple[str, str], int] = defaultdict(int)
    for entry in ledger.entries:
        if entry.event == "start":
            counted[entry.job, entry.stage] += 1
    return dict(counted)


def _entry(line: str) -> Entry:
    at_s, pid, job, stage, token, event = line.split()
    return Entry(float(at_s), int(pid), job, stage, int(token), event)
