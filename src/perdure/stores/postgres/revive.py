"""A new life for failed jobs.

Always true: of the jobs of one owner, pipeline and key, at most one is given a new life while another lives, and
at most one is driven again in one run; and a run one of whose jobs lives again is not called finished.

What may happen at once: anything, in READ COMMITTED. The failed jobs that are named are locked with all other failed
ones of their keys, then the rows of their runs, each in the order of numbers; only after that, by statements
that see what others have committed meanwhile, is it asked who is alive and which runs had ended. Whoever
gives a run another status holds its row too, and counts afterwards: of two such hands the second sees
what the first did. Enqueueing takes no such lock: a job that comes in with the same key in another run at this
very moment may live beside a revived one, as two that are enqueued in two runs do.

If we die in the middle, nothing of it has happened: all of it is in the caller's transaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perdure.model.changes import ChangeKind
from perdure.model.errors import CallerError
from perdure.model.operations import Revival
from perdure.model.runs import FINISHED, RunStatus
from perdure.stores.change_lines import run_entry
from perdure.stores.moments import seconds_us
from perdure.stores.postgres.change_feed import tell
from perdure.stores.postgres.claim import array
from perdure.stores.postgres.connection_pool import Cx
from perdure.stores.postgres.fair_ranks import ranks_anew
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import AGEING_US, encode

Seen = tuple[int, int]  # the number of a job, and its token


class KeyRival(NamedTuple):
    """A job whose key keeps another dead letter from being revived."""

    id: str
    alive: bool


class _Dead(NamedTuple):
    """A failed job whose row is locked, in the order of `revive_lock.sql`."""

    no: int
    token: int
    owner: str
    pipeline: str
    key: str | None
    id: str
    run: int | None
    redrive_run: int | None


def revive(cx: Cx, chosen: Sequence[Revival], now: int, *, borrowed: bool = False) -> set[int]:
    """Begin new lives, whoever has their keys; the numbers of the jobs that were still as they were seen.

    In a ``borrowed`` transaction nothing is counted in a row that another one writes.
    """
    ranks = ranks_anew(cx, chosen, now)
    dead, statuses = _lock(cx, chosen)
    return {no for no, _ in _begin(cx, chosen, dead, statuses, ranks, now, borrowed=borrowed)}


def revive_apart(
    cx: Cx, chosen: Sequence[Revival], now: int, owner: str | None = None
) -> tuple[set[Seen], dict[Seen, KeyRival]]:
    """Begin new lives where no job of the same key is in the way; for the others, the job that is.

    Of several that have one key, the lowest number lives.
    """
    _check_runs(cx, chosen)
    ranks = ranks_anew(cx, chosen, now)
    dead, statuses = _lock(cx, chosen, owner)
    conflicts = _conflicts(cx, chosen, dead)
    free = {no: one for no, one in dead.items() if no not in conflicts}
    done = _begin(cx, chosen, free, statuses, ranks, now)
    return done, {(no, dead[no].token): rival for no, rival in conflicts.items()}


def _conflicts(cx: Cx, chosen: Iterable[Revival], dead: Mapping[int, _Dead]) -> dict[int, KeyRival]:
    """Who is alive, or was driven again in the same run and has ended."""
    keyed = {no: one for no, one in sorted(dead.items()) if one.key is not None}
    conflicts = {no: KeyRival(id, True) for no, id in rivals(cx, keyed).items()}
    before = _driven_ids(cx, [one for one in chosen if one.no in keyed and one.no not in conflicts])
    first: dict[tuple[str, str, str | None], _Dead] = {}
    for no, one in keyed.items():
        place = (one.owner, one.pipeline, one.key)
        if no in conflicts:
            continue
        if place in first:
            conflicts[no] = KeyRival(first[place].id, True)
        elif no in before:
            conflicts[no] = KeyRival(before[no], False)
        else:
            first[place] = one
    return conflicts


def _driven_ids(cx: Cx, chosen: Iterable[Revival]) -> dict[int, str]:
    """For these jobs, who of their owner, pipeline and key was driven in the same run before."""
    asked = [{"no": one.no, "run": one.redrive_run} for one in chosen if one.redrive_run]
    return dict(cx.execute(SQL.driven, {"revivals": encode(asked)}).fetchall()) if asked else {}


def rivals(cx: Cx, nos: Iterable[int]) -> dict[int, str]:
    """For these jobs, who of their owner, pipeline and key is alive."""
    asked = array(nos)
    return dict(cx.execute(SQL.rivals, {"nos": asked}).fetchall()) if asked != "{}" else {}


def _check_runs(cx: Cx, chosen: Sequence[Revival]) -> None:
    again = [{"no": one.no, "run": one.redrive_run} for one in chosen if one.redrive_run]
    row = cx.execute(SQL.in_own_run, {"revivals": encode(again)}).fetchone() if again else None
    if row is not None:
        raise CallerError(
            f"job {row[0]} belongs to run {row[1]} and cannot be driven again in that one; make another"
        )


def _lock(
    cx: Cx, chosen: Sequence[Revival], owner: str | None = None
) -> tuple[dict[int, _Dead], dict[int, str]]:
    """The jobs that are still failed, as they were seen, and may live, by number; their runs' statuses. All are locked.

    In the closed lanes of a cancelled run a job would never end: there is no new life in one.
    """
    seen = {(one.no, one.token): one for one in chosen}
    targets = [{"no": no, "token": token} for no, token in seen]
    where = {"targets": encode(targets), "owner": owner}
    rows = cx.execute(SQL.revive_lock, where).fetchall()
    dead = {one.no: one for one in map(_Dead._make, rows) if (one.no, one.token) in seen}
    lanes_of = {
        no: seen[no, one.token].redrive_run or one.redrive_run or one.run
        for no, one in dead.items()
    }
    runs = {one.run for one in dead.values()} | {one.redrive_run for one in dead.values()}
    statuses = _statuses(cx, runs | set(lanes_of.values()))
    cancelled = {
        no for no, run in lanes_of.items() if statuses.get(run or 0) == RunStatus.CANCELLED
    }
    return {no: one for no, one in dead.items() if no not in cancelled}, statuses


def _begin(
    cx: Cx,
    chosen: Iterable[Revival],
    dead: Mapping[int, _Dead],
    statuses: Mapping[int, str],
    ranks: Mapping[int, int],
    now: int,
    *,
    borrowed: bool = False,
) -> set[Seen]:
    apart = {one.no: one for one in chosen if one.no in dead and dead[one.no].token == one.token}
    if not apart:
        return set()
    runs = _runs_of(apart.values(), dead)
    ended = sorted(no for no in runs if statuses.get(no) in FINISHED)
    rows = [
        {
            "no": one.no,
            "token": one.token,
            "stage": one.stage,
            "lane": one.lane,
            "input_from": one.input_from,
            "redrive_run": one.redrive_run,
            "rank_at": ranks.get(one.no),
            "payload": one.payload_json,
            "policies_us": None if one.deadline_s is None else seconds_us(one.deadline_s),
        }
        for one in apart.values()
    ]
    where = {"revivals": encode(rows), "now": now, "ageing_us": AGEING_US, "borrowed": borrowed}
    done = {(no, dead[no].token) for (no,) in cx.execute(SQL.revive, where).fetchall()}
    if ended:
        again = cx.execute(SQL.runs_reopen, {"nos": array(ended), "now": now}).fetchall()
        tell(cx, ChangeKind.RUN_CHANGED, [run_entry(*row) for row in again], now)
    forgotten = [
        {"no": one.no, "stage": stage} for one in apart.values() for stage in one.forgotten
    ]
    if forgotten:
        cx.execute(SQL.checkpoints_forget, {"forgotten": encode(forgotten)})
    return done


def _runs_of(chosen: Iterable[Revival], dead: Mapping[int, _Dead]) -> set[int]:
    """The runs of these jobs, before and after their new life begins."""
    return {
        run
        for one in chosen
        for run in (dead[one.no].run, dead[one.no].redrive_run, one.redrive_run)
        if run is not None
    }


def _statuses(cx: Cx, runs: Iterable[int | None]) -> dict[int, str]:
    """What these runs are; all of them are locked."""
    nos = sorted(no for no in runs if no is not None)
    return dict(cx.execute(SQL.runs_lock, {"nos": array(nos)}).fetchall()) if nos else {}
