"""What a tour found out, and whether that is what it promised."""

from collections import Counter
from dataclasses import dataclass, field

from perdure.demo.script import Fault
from perdure.model.jobs import Counters
from perdure.model.views import AttemptView, Books, FailureGroup, Finding, JobView

TIME_RAN_OUT = "THE TIME RAN OUT"
_FEW = 200  # items that a slow machine finishes in time


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of a tour, as read from the store when everything was at rest."""

    items: int
    seed: int
    elapsed_s: float
    books: Books
    findings: tuple[Finding, ...]
    failures: tuple[FailureGroup, ...]
    faults: dict[Fault, int]
    sums: Counters
    bereaved: int  # items that were in the hands of a process that died
    rescued: int  # and succeeded all the same
    history: tuple[JobView, list[AttemptView]] | None
    unfinished: tuple[JobView, ...] = ()
    trouble: tuple[str, ...] = field(default=())

    @property
    def complaints(self) -> list[str]:
        """Everything that is not as promised; a tour without complaint succeeds."""
        return [*self.trouble, *self._stuck_lines(), *self._books(), *self._missing()]

    def _stuck_lines(self) -> list[str]:
        if not self.unfinished:
            return []
        where = Counter(f"{job.shown_state} at {job.stage}" for job in self.unfinished)
        counted = ", ".join(f"{count} {place}" for place, count in where.most_common())
        ids = " ".join(job.id for job in self.unfinished[:3])
        late = f"{len(self.unfinished):,} items were not finished after {self.elapsed_s:.0f} s"
        fewer = f"; on a slow machine: perdure demo --items {_FEW}" if self.items > _FEW else ""
        return [f"{TIME_RAN_OUT}: {late}: {counted}; among them {ids}{fewer}"]

    def _books(self) -> list[str]:
        books, said = self.books, []
        if not books.balanced:
            said.append(f"{books.accepted:,} items came in, {books.accounted:,} are accounted for")
        if books.accepted != self.items:
            said.append(f"{self.items:,} items were enqueued, {books.accepted:,} came in")
        said += [f"audit: {one.check}: {one.subject} {one.text}" for one in self.findings]
        return said

    def _missing(self) -> list[str]:
        if self.unfinished:  # what is not done may yet be struck
            return []
        return [
            f"this fault never struck: {fault.value} ({fault.in_words})"
            for fault in Fault
            if not self.faults.get(fault)
        ]
