"""What operators and the upkeep do: guarded writes that say who did it and why; the same on every store.

Always true: a deed and its line in the audit log are one transaction; a deed that changed nothing (the
job has moved on, the queue was paused already, the gate's generation is another) leaves no line.
Whatever changes a job raises its token, so that every earlier sight of it is stale.

Who is authoritative: the rows. A gate is changed by comparing its generation, a run by comparing
its status, a schedule by its moment, a bulk operation by its cursor, a job by its token: of two
hands that saw the same thing, one acts and the other is told that it came too late. A duty is a lease by the
store's clock and ends at once with its worker's life.

If we die in the middle of a method, nothing of it has happened; if the answer is lost, the same call again
finds its own run, bulk operation or duty, and is otherwise told that the thing has moved on, which it has.
After what opens a lane, makes a job ready or changes a gate, idle workers are woken; that is only a hint.
"""

from abc import abstractmethod
from collections.abc import Sequence

from perdure.model.access import AccessToken, NewAccessToken
from perdure.model.jobs import Enqueued, NewJob
from perdure.model.limits import PRUNE_BATCH_MAX
from perdure.model.operations import Deed, NewSchedule, Pruned, Retention, Tick
from perdure.stores import deeds
from perdure.stores.bulks import SharedBulks
from perdure.stores.columns import ACCESS_TOKEN
from perdure.stores.deed_writer import OpenTransaction
from perdure.stores.moments import seconds_us, to_us
from perdure.stores.pruning import Ends
from perdure.stores.rows import Row
from perdure.stores.runs import SharedRuns


class SharedControl(SharedBulks, SharedRuns):
    """The `Control` port but for what each store does in its own way."""

    @abstractmethod
    def _accept(self, cx: OpenTransaction, job: NewJob, now: int) -> Enqueued:
        """Enqueue a job, in a transaction."""

    @abstractmethod
    def _duty_seen(self, name: str) -> Row | None:
        """Who has a duty, for how long yet, and whether that worker is alive."""

    @abstractmethod
    def _let_go(self, cx: OpenTransaction, rows: Sequence[Row]) -> tuple[int, int]:
        """Delete these jobs with all that is theirs; how many went, and how many attempts with them."""

    def put_schedule(self, schedule: NewSchedule) -> None:
        """Make a schedule; one of that name and rule keeps its next moment."""
        where = {
            "name": schedule.name,
            "pipeline": schedule.pipeline,
            "spec": schedule.spec,
            "payload": schedule.payload_json,
            "next_at": to_us(schedule.next_at),
        }
        self._execute(self._sql.schedule_put, where)

    def drop_schedule(self, name: str) -> bool:
        """Forget a schedule; False when there was none."""
        return self._execute(self._sql.schedule_drop, {"name": name}) == 1

    def tick(self, tick: Tick) -> Enqueued | None:
        """Enqueue the job of one moment and advance the schedule; None when another has done it."""

        def work(cx: OpenTransaction, now: int) -> Enqueued | None:
            where = {
                "name": tick.schedule,
                "due_at": to_us(tick.due_at),
                "next_at": to_us(tick.next_at),
                "now": now,
            }
            if cx.execute(self._sql.schedule_tick, where).rowcount != 1:
                return None
            done = self._accept(cx, tick.job, now)
            self._wake(cx)
            return done

        return self._write(work)

    def add_access_token(self, token: NewAccessToken, deed: Deed) -> AccessToken:
        """Keep an access token; the same id finds the same one. With a login those go that have expired."""

        def work(cx: OpenTransaction, now: int) -> AccessToken:
            if not token.scopes:
                cx.execute(self._sql.access_logins_drop, {"now": now})
            where = {
                "id": token.id,
                "hash": token.hash,
                "name": token.name,
                "owner": token.owner,
                "scopes": " ".join(token.scopes),
                "expires_at": None if token.expires_at is None else to_us(token.expires_at),
                "now": now,
            }
            if cx.execute(self._sql.access_token_add, where).rowcount == 1:
                self._note(cx, deeds.ADMIT, [token.id], deed, now)
            kept = cx.execute(self._sql.access_token_by_id, {"id": token.id}).fetchone()
            return ACCESS_TOKEN.read(kept)

        return self._write(work)

    def revoke_access_token(self, id: str, deed: Deed) -> bool:
        """Let a token open nothing any more; False when there is none of that id that did."""

        def work(cx: OpenTransaction, now: int) -> bool:
            revoked = cx.execute(self._sql.access_token_revoke, {"id": id, "now": now})
            if revoked.rowcount != 1:
                return False
            self._note(cx, deeds.SHUT_OUT, [id], deed, now)
            return True

        return self._write(work)

    def take_request(self, owner: str, *, burst: int, every_s: float) -> float:
        """Let a request of an owner in, or say after how many seconds one will be; 0.0 when it is in."""
        every = max(1, seconds_us(every_s))

        def work(cx: OpenTransaction, now: int) -> float:
            empty = now + burst * every
            where = {"owner": owner, "now": now, "every": every, "empty": empty}
            if cx.execute(self._sql.owner_rate_take, where).rowcount == 1:
                return 0.0
            ((full_at,),) = cx.execute(self._sql.owner_rate, {"owner": owner}).fetchall()
            return float(full_at + every - empty) / 1_000_000

        return self._write(work)

    def take_duty(self, name: str, *, worker: int, ttl_s: float) -> bool:
        """Take or keep a duty that one living worker at a time has, until its time runs out."""
        ttl_us = seconds_us(ttl_s)
        known = standing(self._duty_seen(name), worker=worker, ttl_us=ttl_us)
        if known is not None:
            return known

        def work(cx: OpenTransaction, now: int) -> bool:
            where = {"name": name, "worker": worker, "until_at": now + ttl_us, "now": now}
            return bool(cx.execute(self._sql.duty_take, where).rowcount == 1)

        return self._write(work)

    def prune(self, retention: Retention, *, limit: int, after: int = 0) -> Pruned:
        """Look at up to ``limit`` jobs above a number and let go what may go; the books keep count."""
        limit = min(limit, PRUNE_BATCH_MAX)

        def work(cx: OpenTransaction, now: int) -> Pruned:
            rows = cx.execute(self._sql.prune_look, {"after": after, "limit": limit}).fetchall()
            aged = Ends.of(retention, now).choose_aged(rows, limit)
            jobs, attempts = self._let_go(cx, aged.rows) if aged.rows else (0, 0)
            return Pruned(jobs, attempts, aged.go_on_after)

        return self._write(work)

    def prune_captures(self, *, limit: int) -> int:
        """Forget captures whose time is over, the longest over first."""

        def work(cx: OpenTransaction, now: int) -> int:
            where = {"now": now, "limit": max(0, min(limit, PRUNE_BATCH_MAX))}
            return int(cx.execute(self._sql.prune_captures, where).rowcount)

        return self._write(work)


def standing(seen: Row | None, *, worker: int, ttl_us: int) -> bool | None:
    """Whether this worker has the duty; None when it may take or has to renew it, which is a write.

    ``seen`` says who has it, for how long yet, and whether that one is alive. A
    duty is renewed when less than half of its time is left. What is seen may be old when it is
    acted upon: the write has the same guards.
    """
    if seen is None:
        return None
    holder, left_us, alive = seen
    if holder != worker:
        return False if alive and left_us > 0 else None
    if not alive:
        return False
    return None if left_us * 2 < ttl_us else True
