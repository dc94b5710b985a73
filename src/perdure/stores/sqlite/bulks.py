"""Deeds on jobs: one after the other, each with what it changes in the tallies."""

import sqlite3
from collections.abc import Sequence

from perdure.model.changes import ChangeKind
from perdure.model.jobs import Busy, Receipt, Record, Revived, Settled
from perdure.model.operations import Refusal, Revival, Target
from perdure.model.states import State
from perdure.stores.bulks import SharedBulks, stale
from perdure.stores.changes import Entry
from perdure.stores.counting import Letter, Tally, place_of
from perdure.stores.moments import from_us
from perdure.stores.sqlite.changing import tell
from perdure.stores.sqlite.ranking import ranks_anew
from perdure.stores.sqlite.reviving import Revivals, check_runs, conflict
from perdure.stores.sqlite.settling import add_tally, record_each
from perdure.stores.sqlite.statements import SQL


class SqliteBulks(SharedBulks):
    """What bulk operations do to jobs on one SQLite file."""

    def _revive(
        self, cx: sqlite3.Connection, chosen: Sequence[Revival], owner: str | None, now: int
    ) -> list[Revived]:
        check_runs(cx, chosen)
        ranks = ranks_anew(cx, chosen, now)
        revivals = Revivals(cx, now, owner)
        answers: dict[int, Revived] = {}
        for place, one in sorted(enumerate(chosen), key=lambda pair: pair[1].no):
            seen = revivals.seen(one)
            if seen is None:
                answers[place] = stale(one)
            elif found := conflict(cx, one):
                answers[place] = found
            else:
                revivals.begin(one, seen, ranks.get(one.no))
                answers[place] = Receipt(one.no, one.id, one.token, State.QUEUED, from_us(now))
        revivals.close()
        return [answers[place] for place in range(len(chosen))]

    def _discard(
        self, cx: sqlite3.Connection, chosen: Sequence[Target], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        tally = Tally()
        answers: list[Settled | Busy] = []
        for one in chosen:
            where = {"no": one.no, "token": one.token, "owner": owner, "now": now}
            row = cx.execute(SQL.discard, where).fetchone()
            if row is None:
                answers.append(stale(one))
                continue
            tally.discarded(Letter(*row[9:]))
            cx.execute(SQL.owned_put, (one.no, now))
            tell(cx, ChangeKind.JOB_DISCARDED, [Entry(*row[:9])], now)
            answers.append(Receipt(one.no, one.id, one.token, State.FAILED, None))
        add_tally(cx, tally, 0, now)
        return answers

    def _cancel(
        self, cx: sqlite3.Connection, records: Sequence[Record], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        answers: list[Settled | Busy] = []
        for one in records:
            where = {"no": one.no, "token": one.token, "owner": owner}
            is_open = cx.execute(SQL.cancellable, where).fetchone() is not None
            answers += record_each(cx, [one], None, now) if is_open else [stale(one)]
        return answers

    def _run_now(
        self, cx: sqlite3.Connection, chosen: Sequence[Target], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        tally = Tally()
        answers: list[Settled | Busy] = []
        for one in chosen:
            where = {"no": one.no, "token": one.token, "owner": owner, "now": now}
            row = cx.execute(SQL.run_now, where).fetchone()
            if row is None:
                answers.append(stale(one))
                continue
            lane, error_kind = row
            tally.moved(lane, place_of(State.QUEUED, False, error_kind), "ready")
            cx.execute(SQL.owned_put, (one.no, now))
            answers.append(Receipt(one.no, one.id, one.token, State.QUEUED, from_us(now)))
        add_tally(cx, tally, 0, now)
        return answers

    def _refuse(self, cx: sqlite3.Connection, bulk: int, refusals: Sequence[Refusal]) -> int:
        rows = [{"bulk": bulk, "job": one.no, "why": one.why} for one in refusals]
        return cx.executemany(SQL.refusal_add, rows).rowcount

    def _keep_payloads(
        self, cx: sqlite3.Connection, bulk: int, payloads: Sequence[tuple[str, str]]
    ) -> None:
        cx.executemany(SQL.bulk_payload_add, [(bulk, *one) for one in payloads])
