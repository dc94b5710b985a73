"""Deeds on jobs: one statement for all of them."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from perdure.model.jobs import Busy, Conflict, Receipt, Record, Revived, Settled
from perdure.model.operations import Refusal, Revival, Target
from perdure.model.states import State
from perdure.stores.bulks import SharedBulks, stale
from perdure.stores.moments import from_us
from perdure.stores.postgres.lending import Cx
from perdure.stores.postgres.reviving import revive_apart
from perdure.stores.postgres.settling import busy_among, record_whole
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import encoded


class PostgresBulks(SharedBulks):
    """What bulk operations do to jobs on one PostgreSQL database."""

    def _revive(
        self, cx: Cx, chosen: Sequence[Revival], owner: str | None, now: int
    ) -> list[Revived]:
        done, conflicts = revive_apart(cx, chosen, now, owner)
        if done:
            self._wake(cx)
        answers: list[Revived] = []
        for one in chosen:
            place = (one.no, one.token)
            if place in done:
                done.remove(place)  # one that is named twice lives once
                answers.append(Receipt(one.no, one.id, one.token, State.QUEUED, from_us(now)))
            elif place in conflicts:
                answers.append(Conflict(one.no, one.id, one.token, *conflicts[place]))
            else:
                answers.append(stale(one))
        return answers

    def _discard(
        self, cx: Cx, chosen: Sequence[Target], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        where = {"targets": _seen(chosen), "owner": owner, "now": now}
        done = set(cx.execute(SQL.discard, where).fetchall())
        return _answers(chosen, done, State.FAILED, None)

    def _cancel(
        self, cx: Cx, records: Sequence[Record], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        busy = {one.no: one for one in busy_among(cx, records, owner=owner)}
        free = [one for one in records if one.no not in busy]
        where = {"targets": _seen(free), "owner": owner}
        open_now = set(cx.execute(SQL.cancellable, where).fetchall())
        wanted = [one for one in free if (one.no, one.token) in open_now]
        told = iter(record_whole(cx, wanted, None, now))
        return [
            next(told) if (one.no, one.token) in open_now else busy.get(one.no) or stale(one)
            for one in records
        ]

    def _run_now(
        self, cx: Cx, chosen: Sequence[Target], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        where = {"targets": _seen(chosen), "owner": owner, "now": now}
        done = set(cx.execute(SQL.run_now, where).fetchall())
        if done:
            self._wake(cx)
        return _answers(chosen, done, State.QUEUED, from_us(now))

    def _refuse(self, cx: Cx, bulk: int, refusals: Sequence[Refusal]) -> int:
        rows = [{"no": one.no, "why": one.why} for one in refusals]
        return cx.execute(SQL.bulk_refuse, {"no": bulk, "refusals": encoded(rows)}).rowcount

    def _keep_payloads(self, cx: Cx, bulk: int, payloads: Sequence[tuple[str, str]]) -> None:
        if payloads:
            rows = [{"key": key, "payload": payload} for key, payload in payloads]
            cx.execute(SQL.bulk_payloads_add, {"bulk": bulk, "payloads": encoded(rows)})


def _seen(chosen: Iterable[Target | Record]) -> str:
    return encoded([{"no": one.no, "token": one.token} for one in chosen])


def _answers(
    chosen: Iterable[Target], done: set[tuple[int, int]], state: State, due_at: datetime | None
) -> list[Settled | Busy]:
    """The answer for each job; if a job is named twice, only the first gets a receipt."""
    answers: list[Settled | Busy] = []
    for one in chosen:
        if (one.no, one.token) in done:
            done.remove((one.no, one.token))
            answers.append(Receipt(one.no, one.id, one.token, state, due_at))
        else:
            answers.append(stale(one))
    return answers
