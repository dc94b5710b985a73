"""The invariants by name, what judges each, and what it means that one of them is broken.

The names S1 to S16, S19 and L1, L2, L6 are those of the published promise; L9 to L11 and E1 to E18 are our own,
finer ones.
Every function that is named here says `broken` with that name; a test looks whether it does.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Invariant:
    """What always holds, and which functions see that it does."""

    text: str
    checked_by: tuple[str, ...]


INVARIANTS = {
    "S1": Invariant(
        "an accepted job is never lost, and let go only when it has been over for long enough",
        ("Checker.acknowledged", "Checker.accepted_new", "Deeds._prune", "Runs._add_run",
         "tables.check_tables"),
    ),
    "S2": Invariant(
        "a job has at most one terminal state in each of its lives",
        ("Checker._accepted", "Checker._claim", "Checker.cancelled", "Deeds._guarded"),
    ),
    "S3": Invariant(
        "a record is written only under the token of the latest claim, by a living holder",
        ("Checker.settle", "Checker._repeated", "Checker._accepted", "Checker._claim",
         "Deeds._guarded"),
    ),
    "S4": Invariant(
        "no beat and no write of a dead worker is accepted",
        ("Checker._turn", "Roster._beat", "Roster._end_worker", "tables._check_workers"),
    ),
    "S5": Invariant(
        "only a claim whose worker is dead or too late is rescued, and nothing comes back from its end",
        ("Checker._accepted", "Checker._claim", "Roster._overrun", "Roster._lost_claims"),
    ),
    "S6": Invariant(
        "no worker is declared dead within a lease of its last beat, or because the store was away",
        ("Roster._mark_dead",),
    ),
    "S7": Invariant(
        "no more starts than the limits on failures, waits and snoozes allow",
        ("limits.check_limits", "limits._goes_on"),
    ),
    "S8": Invariant(
        "crashes are counted and bounded, and only a crash alone in a process fails a job",
        ("limits.check_limits", "limits._goes_on", "limits._failed", "Checker._claim"),
    ),
    "S9": Invariant(
        "no attempt starts before it is due, or earlier than its policy or a server asked",
        ("Checker._claim", "Checker._check_expiry", "Deeds._run_now", "Gates._check_told",
         "limits._check_pause"),
    ),
    "S10": Invariant(
        "neither a worker nor an upstream ever has more calls than its concurrency",
        ("Checker._turn", "Gates._change_slices", "Gates._check_concurrency"),
    ),
    "S11": Invariant(
        "behind a gate that is not flowing nothing starts but its one probe, nor before a told pause "
        "is over; only that probe, its time, three probes that say nothing or a person lets it flow",
        ("Gates._probe", "Gates._changed", "Gates._by_worker", "Gates._check_over",
         "Probes._probed", "Probes._check_proved", "Probes._check_given_up", "Gates.claimed",
         "Gates._check_passes", "Gates._check_told"),
    ),
    "S12": Invariant(
        "the same key is the same job, as long as that is there",
        ("Checker._answered", "Checker.acknowledged"),
    ),
    "S13": Invariant(
        "a stage is begun only when all before it are committed",
        ("Checker._claim", "Deeds._revive_one"),
    ),
    "S14": Invariant(
        "a committed stage is never claimed again in the same life, and its result never changes",
        ("Checker._claim", "Checker._apply", "tables._check_checkpoints"),
    ),
    "S15": Invariant(
        "the books balance, the tables and the counts of runs say what the history says, the audit "
        "finds nothing",
        ("tables.check_tables", "tables._check_row", "tables._check_attempts", "Roster._tokens_held",
         "Runs.seen"),
    ),
    "S16": Invariant(
        "what a stage has used up is counted once: in its attempt, and in each run of its job",
        ("Runs._check_usage", "Runs.seen", "tables._check_attempts"),
    ),
    "S19": Invariant(
        "a dead letter keeps its payload, its failure and the attempts of all of its lives",
        ("tables._check_dead_letters",),
    ),
    "L1": Invariant(
        "after the faults end, every job reaches a terminal state and every schedule ticks in bounded time",
        ("Simulation._see_jobs_end", "Simulation._see_ticks"),
    ),
    "L2": Invariant(
        "after the faults end, what a dead worker held is settled within a bound",
        ("Roster.check_rescue",),
    ),
    "L6": Invariant(
        "a worker told to stop leaves in time, holding nothing",
        ("Simulation.stop", "Roster._end_worker"),
    ),
    "L9": Invariant(
        "after the faults end, every gate flows again where there is work behind it",
        ("Simulation._see_gates_flow",),
    ),
    "L10": Invariant(
        "after the faults end, every run ends, every bulk operation is done, and a run that is over its "
        "budget is aborted within a few looks",
        ("Simulation._see_runs_end", "Simulation._see_jobs_end", "Runs.seen"),
    ),
    "L11": Invariant(
        "no sequence of results holds an upstream for ever that answers: within so many probes its gate flows, "
        "unless it is a credential's or a person's",
        ("Probes._check_not_for_ever", "Simulation._see_gates_flow"),
    ),
    "E1": Invariant(
        "no turn fails for a reason that nobody foresaw",
        ("Checker._turn", "Checker.settle", "Roster._beat"),
    ),
    "E2": Invariant("what is told is durable", ("Checker.told", "Deeds.told")),
    "E3": Invariant(
        "a claim is run at most once, by the worker that made it",
        ("Checker.began", "Checker._accepted"),
    ),
    "E4": Invariant(
        "when every job is over, every worker's hands are empty", ("Simulation.settle",)
    ),
    "E5": Invariant(
        "nothing is claimed from a closed lane, and a pause and its end are each done once",
        ("Checker._claim", "Checker._begin", "Checker._accepted", "Deeds._pause", "Deeds._resume",
         "tables._check_lanes_and_schedules"),
    ),
    "E6": Invariant(
        "a moment of a schedule makes one job, and of those that were missed only the latest does",
        ("Deeds._tick", "Deeds._made", "Deeds._moment", "Deeds._drop_schedule",
         "tables._check_lanes_and_schedules"),
    ),
    "E7": Invariant("one living worker at a time has a duty", ("Deeds._take_duty",)),
    "E8": Invariant(
        "what a lost caller leaves behind goes on or ends, as it asked", ("Checker._check_wish",)
    ),
    "E9": Invariant(
        "a gate and the parting of its limits change only from the generation that was seen",
        ("Gates._compared", "Gates._change_slices", "tables._check_gates"),
    ),
    "E10": Invariant(
        "a failure that is the upstream's costs no attempt while its gate is known to be held",
        ("Gates._check_unspent",),
    ),
    "E11": Invariant(
        "a bulk operation takes on each dead letter that was there when it began, once: it is done, or "
        "refused and written down; no faster than its rate, and after its canary",
        ("Letters._broken", "tables.check_bulks"),
    ),
    "E12": Invariant(
        "no dead letter lives again beside another job of its owner, pipeline and key, and none is refused "
        "for less",
        ("Deeds._revive_one", "Deeds._conflict"),
    ),
    "E13": Invariant(
        "a run ends when all of its items are in and over, not before, is called by its share of success, runs "
        "again with any of them, and says who feeds it",
        ("Runs._change_run", "Runs._runs", "Runs.seen", "tables.check_runs"),
    ),
    "E14": Invariant(
        "a run is sealed when all of its items are in, not before; and by a feeder that has fed the last of them, "
        "whatever its status is",
        ("Runs._seal_run", "Runs.fed_to_the_end"),
    ),
    "E15": Invariant(
        "a job of a run stands in the lanes of that run, and whoever works knows those of all that are not over",
        ("Runs.check_lane", "Runs._run_lanes"),
    ),
    "E16": Invariant(
        "a run is aborted when a check finds its cumulative counts over its budget, and only then",
        ("Runs._note_check", "Runs._change_run"),
    ),
    "E17": Invariant(
        "who follows the change feed hears what happened to each job, once and in order, and misses nothing",
        ("Feed._hear", "Feed.heard_all"),
    ),
    "E18": Invariant(
        "a row that a stage writes in one transaction with its record is there if and only if the record is, and no "
        "turn waits for such a transaction",
        ("Completing.check", "Remote._without_held"),
    ),
}  # fmt: skip


class Violation(BaseException):
    """An invariant is broken. Not an Exception: the engine's loops must not swallow it."""

    def __init__(self, invariant: str, text: str) -> None:
        self.invariant = invariant
        self.text = text
        super().__init__(f"{invariant} ({INVARIANTS[invariant].text}): {text}")
