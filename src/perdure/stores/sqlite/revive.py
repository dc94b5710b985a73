"""A new life for failed jobs."""

import sqlite3
from collections.abc import Iterable

from perdure.model.changes import ChangeKind
from perdure.model.errors import CallerError
from perdure.model.jobs import Conflict
from perdure.model.operations import Revival
from perdure.model.states import State
from perdure.stores.change_lines import Entry, run_entry
from perdure.stores.moments import seconds_us
from perdure.stores.rows import AGEING_US, Row, encode
from perdure.stores.sqlite.change_feed import tell
from perdure.stores.sqlite.record import add_tally
from perdure.stores.sqlite.statements import SQL
from perdure.stores.tally_changes import Letter, TallyChanges


class RevivalWriter:
    """New lives in one transaction, and what they change in the runs of their jobs."""

    def __init__(self, cx: sqlite3.Connection, now: int, owner: str | None = None) -> None:
        self._cx = cx
        self._now = now
        self._owner = owner
        self._tally = TallyChanges()
        self._runs: set[int] = set()
        self._told: list[Entry] = []

    def row_as_seen(self, one: Revival) -> Row | None:
        """What a job is counted as, if it is still the failed one that was seen and may live."""
        shown = (one.no, one.token, one.redrive_run, self._owner)
        found: Row | None = self._cx.execute(SQL.dead_letter, shown).fetchone()
        return found

    def begin(self, one: Revival, seen: Row, rank_at: int | None) -> None:
        """Begin a new life; a fair job has its rank."""
        if one.payload_json is not None:
            self._cx.execute(SQL.payload_keep, (one.no,))
        self._cx.execute(
            SQL.revive,
            {
                "no": one.no,
                "token": one.token,
                "lane": one.lane,
                "stage": one.stage,
                "input_from": one.input_from,
                "redrive_run": one.redrive_run,
                "now": self._now,
                "ageing_us": AGEING_US,
                "rank_at": rank_at,
                "policies_us": None if one.deadline_s is None else seconds_us(one.deadline_s),
                "payload": one.payload_json,
            },
        )
        self._cx.execute(SQL.owned_put, (one.no, self._now))
        self._cx.execute(SQL.redrive_add, (one.no,))
        run, redriven, lane, discarded_at, *dead = seen
        letter = Letter(*dead)
        kind = letter.kind
        self._tally.add_revived(letter, lane, to=one.lane, discarded=discarded_at is not None)
        where = (one.no, one.id, letter.owner, letter.pipeline, one.stage)
        self._told.append(Entry(*where, State.QUEUED, None, one.token + 1, run))
        self._tally.return_to_run(run, kind)
        if one.redrive_run in (None, redriven):
            self._tally.return_to_run(redriven, kind)
        else:
            self._tally.add_to_run(one.redrive_run)
        self._runs.update(no for no in (run, redriven, one.redrive_run) if no is not None)
        self._cx.executemany(SQL.checkpoint_forget, [(one.no, stage) for stage in one.forgotten])

    def close(self) -> None:
        """Write down what has changed in the counts; runs that had ended are running again."""
        add_tally(self._cx, self._tally, 0, self._now)
        tell(self._cx, ChangeKind.JOB_REVIVED, self._told, self._now)
        if self._runs:
            where = {"nos": encode(sorted(self._runs)), "now": self._now}
            again = self._cx.execute(SQL.runs_reopen, where).fetchall()
            tell(self._cx, ChangeKind.RUN_CHANGED, [run_entry(*row) for row in again], self._now)


def conflict(cx: sqlite3.Connection, one: Revival) -> Conflict | None:
    """Who of its owner, pipeline and key is alive, or was driven again in the same run before."""
    alive = rivals(cx, [one.no])
    if alive:
        return Conflict(one.no, one.id, one.token, alive[one.no])
    if one.redrive_run is None:
        return None
    row = cx.execute(SQL.driven, (one.no, one.redrive_run)).fetchone()
    return row and Conflict(one.no, one.id, one.token, row[0], alive=False)


def check_runs(cx: sqlite3.Connection, chosen: Iterable[Revival]) -> None:
    """Refuse to drive a job again in its own run, which would count it twice."""
    for one in chosen:
        if one.redrive_run is None:
            continue
        row = cx.execute(SQL.in_own_run, (one.no, one.redrive_run)).fetchone()
        if row is not None:
            raise CallerError(
                f"job {row[0]} belongs to run {one.redrive_run} and cannot be driven again in that one; make "
                "another run"
            )


def rivals(cx: sqlite3.Connection, nos: Iterable[int]) -> dict[int, str]:
    """For these jobs, who of their owner, pipeline and key is alive."""
    return dict(cx.execute(SQL.rivals, {"nos": encode(list(nos))}).fetchall())
