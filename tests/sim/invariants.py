"""The invariants by name, and what it means that one of them is broken."""

INVARIANTS = {
    "S1": "an accepted job is never lost",
    "S2": "a job has at most one terminal state",
    "S3": "a record is written only under the token of the latest claim, by a living holder",
    "S4": "no beat and no write of a dead worker is accepted",
    "S5": "only a claim whose worker is dead is rescued, and nothing comes back from its end",
    "S6": "no worker is declared dead within a lease of its last beat, or because the store was away",
    "S7": "no more starts than the limits on failures, waits and snoozes allow",
    "S8": "crashes are counted and bounded, and only a crash alone in a process fails a job",
    "S9": "no attempt starts before it is due, or earlier than a server asked",
    "S10": "a worker never holds more jobs than its concurrency",
    "S12": "the same key is the same job",
    "S14": "a committed stage is never claimed again, and its result never changes",
    "S15": "the books balance, the tables say what the history says, the audit finds nothing",
    "L1": "after the faults end, every job reaches a terminal state in bounded time",
    "L6": "a worker told to stop leaves in time, holding nothing",
    "E1": "no turn fails for a reason that nobody foresaw",
    "E2": "what is told is durable",
    "E3": "a claim is run at most once, by the worker that made it",
    "E4": "when every job is over, every worker's hands are empty",
}


class Violation(BaseException):
    """An invariant is broken. Not an Exception: the engine's loops must not swallow it."""

    def __init__(self, invariant: str, text: str) -> None:
        self.invariant = invariant
        self.text = text
        super().__init__(f"{invariant} ({INVARIANTS[invariant]}): {text}")
