"""Runs: a batch of jobs with thresholds and budgets, from its making to its end.

Always true: a run's counts are what its jobs are, because every write that moves a job counts it in the same
transaction. A run is *finished* only while all of its items are in (it is sealed) and none of them is open; the
store looks again at both when it writes that, so a new item or a new life never meets a finished run: it makes it
running again.

Who is authoritative: the row of the run, changed by comparing its status. Of two hands that saw the same
status, one acts and the other is told that the run has moved on.

What may happen at once: several processes may feed one run (the same key gives the same item), any worker
may find that its budget is overspent or that it is over, and people may pause it meanwhile.

If we die while items are fed, the run stays unsealed and says since when nobody feeds it; who feeds the same items
again under the same name goes on, and what was fed is known by its key. If the one that would have ended it dies, the next one looks.
"""

import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.stages import LaidPipeline, check_name
from perdure.model.errors import CallerError, ConfigError, NotChangeable, RunAborted, UnknownName
from perdure.model.events import EventName
from perdure.model.kinds import Kind
from perdure.model.limits import FEEDER_SILENT_S
from perdure.model.operations import Deed
from perdure.model.runs import NewRun, RunChange, RunStatus, RunView
from perdure.ports import Control, Reader, Store
from perdure.ports.compare_and_set import compare_and_set
from perdure.rules.run_budget import Budget, Tally, overspent, run_status


class RunSettings(Budget, frozen=True):
    """The budget of a run, and where its items come from; kept with it.

    A ``redrive`` brings dead letters. ``source`` is the file that a run without a name of its own is fed from.
    ``key`` is the field that names its items; empty where their place and content do, None where nobody can tell.
    """

    redrive: bool = False
    source: str | None = None
    key: str | None = None


def settings_of(run: RunView) -> RunSettings:
    """The settings of a run."""
    return msgspec.json.decode(run.settings_json, type=RunSettings)


def changed_settings(settings: RunSettings, options: Mapping[str, Any]) -> RunSettings:
    """These settings, with the given options replacing theirs; checked. They are declared nowhere, so a wrong one is the caller's."""
    try:
        return RunSettings(**{**msgspec.to_builtins(settings), **options})
    except ConfigError as wrong:
        raise CallerError(str(wrong)) from None


def settings_in(settings: RunSettings) -> str:
    """Settings as they are stored."""
    return msgspec.json.encode(settings).decode()


def tally_of(run: RunView) -> Tally:
    """What a run's items came to so far."""
    known = {kind.value for kind in Kind}
    failures: dict[Kind, int] = {}
    for name, count in run.kinds.items():
        kind = Kind(name) if name in known else Kind.UNKNOWN
        failures[kind] = failures.get(kind, 0) + count
    return Tally(run.counts.succeeded, failures)


def over_budget(run: RunView, settings: RunSettings, *, due: bool = True) -> str | None:
    """Why a run must be aborted as it stands, in words for its owner; without a check that is ``due``, only for its cost."""
    cost, cost_max = run.counts.cost_usd, settings.cost_max_usd
    if cost_max is not None and cost > cost_max:
        counts = run.counts
        return (
            f"aborted: the cost is ${cost:.4f}, the budget is ${cost_max:.4f} "
            f"({counts.processed} processed, {counts.failed} failed)"
        )
    return overspent(settings, tally_of(run)) if due else None


def unfed_at(run: RunView, now: datetime) -> datetime | None:
    """Since when nobody has fed an unsealed run, which cannot end before it is sealed; None for all others.

    A feeder that says that it has ended is believed at once; one that died is known by the age of its last sign. A
    re-drive is fed by its operation.
    """
    over = run.ended_at is not None or run.status is RunStatus.CANCELLED
    if run.sealed_at is not None or over or settings_of(run).redrive:
        return None
    last_at = run.fed_at or run.created_at
    left = run.fed_at is not None and run.feeding_at is None
    silent = now - last_at >= timedelta(seconds=FEEDER_SILENT_S)
    return last_at if left or silent else None


def is_stranded(run: RunView, now: datetime) -> bool:
    """Whether all that is in a run has ended, and nobody has fed it for a while: waiting for its end is in vain."""
    at = unfed_at(run, now)
    if at is None or run.counts.open:
        return False
    return now - max(at, run.changed_at) >= timedelta(seconds=FEEDER_SILENT_S)


def unfed_words(run: RunView, now: datetime) -> str:
    """That nobody feeds a run, since when, and what to do about it; nothing for one that can end."""
    at, name = unfed_at(run, now), shlex.quote(run.name)
    if at is None:
        return ""
    return (
        f"not sealed and fed by nobody since {at:%Y-%m-%d %H:%M:%S} UTC, so it cannot end; feed it again "
        f"(perdure run ... --name {name}), or say that all of its items are in: perdure runs seal {run.no}"
    )


def final_status(run: RunView) -> RunStatus:
    """What to call a run that is over."""
    return run_status(tally_of(run), settings_of(run))


class OpenRun(Struct, frozen=True):
    """A run that takes items: the lane in which they begin, and whether all of them were in before."""

    run: RunView
    lane: int
    was_sealed: bool


class Runs(Struct, frozen=True):
    """The verbs of runs, as people and callers use them."""

    store: Store
    control: Control
    reader: Reader
    observers: Observers

    def open(
        self,
        laid: LaidPipeline,
        ids: Ids,
        *,
        name: str | None,
        owner: str,
        options: Mapping[str, Any],
        deed: Deed,
    ) -> OpenRun:
        """Make a run, or find the one of that name again to go on with it; its lanes are there afterwards."""
        id = ids.next()
        if name is not None:
            _check_run_name(name)
        wanted = changed_settings(RunSettings(), options)
        run = self.control.add_run(NewRun(id, owner, laid.name, name or id, settings_in(wanted)))
        was_sealed = False
        if run.id != id:
            run, was_sealed = self._open_again(run, options, deed)
        numbers = self.store.lanes(laid.lanes(run.no))
        first = laid.lane(laid.stages[0], run.no)
        return OpenRun(run, numbers[first], was_sealed)

    def seal(self, run: RunView) -> RunView:
        """Say that all of its items are in; one without any, or with all of them done, is over at once."""
        sealed = self.control.seal_run(run.no)
        if sealed is None:
            raise UnknownName(f"run {run.name!r} is no longer in the store")
        return self.settle(sealed)

    def settle(self, run: RunView) -> RunView:
        """End a run that is over; the run as it is now."""
        if run.status is not RunStatus.RUNNING or run.sealed_at is None or run.counts.open:
            return run
        change = RunChange(
            run.no, RunStatus.RUNNING, final_status(run), why=_summary(run), counts=run.counts
        )
        return self._write_change(change, Deed("perdure", "all of its items have ended")) or run

    def abort(self, run: RunView, why: str) -> RunView | None:
        """Close the lanes of a run that is over its budget; what is left stays queued."""
        change = RunChange(run.no, RunStatus.RUNNING, RunStatus.ABORTED, why=why)
        return self._write_change(change, Deed("perdure", why))

    def pause(self, run: RunView, deed: Deed) -> RunView:
        """Close the lanes of a running run; attempts under way end."""
        return self._change(run, {RunStatus.RUNNING}, RunStatus.PAUSED, deed, why=deed.reason)

    def cancel(self, run: RunView, deed: Deed) -> RunView:
        """Cancel a run that is not over: its lanes are closed at once, its open jobs cancelled by a worker."""
        seen = {RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.ABORTED}
        return self._change(run, seen, RunStatus.CANCELLED, deed, why=deed.reason)

    def resume(self, run: RunView, deed: Deed, options: Mapping[str, Any] | None = None) -> RunView:
        """Open the lanes of a paused or aborted run, with other budgets if they are given."""
        settings = changed_settings(settings_of(run), options or {})
        why = over_budget(run, settings) if run.status is RunStatus.ABORTED else None
        if why is not None:
            raise RunAborted(
                f"run {run.name!r} would be {why}; raise the budget, or drive its dead letters again first"
            )
        seen = {RunStatus.PAUSED, RunStatus.ABORTED}
        kept = settings_in(settings)
        # Where nothing is left to be done, it is over at once.
        return self.settle(self._change(run, seen, RunStatus.RUNNING, deed, settings_json=kept))

    def finish_cancel(self, run: RunView) -> RunView | None:
        """Say that none of a cancelled run's jobs is open any more."""
        change = RunChange(run.no, RunStatus.CANCELLED, RunStatus.CANCELLED, why=run.why)
        return self._write_change(change, Deed("perdure", "none of its jobs is open any more"))

    def _open_again(
        self, run: RunView, options: Mapping[str, Any], deed: Deed
    ) -> tuple[RunView, bool]:
        """Open an existing run for more items, with the options that are given now; also says whether it was sealed.

        The seal is compared as well: if we took away one that another has just made, nobody would restore it.
        """

        def once() -> tuple[RunView, bool] | None:
            found = self._now(run)
            _check_open_again(found, options)
            settings = changed_settings(settings_of(found), options)
            why = over_budget(found, settings) if found.status is RunStatus.ABORTED else None
            if why is not None:
                raise RunAborted(
                    f"run {run.name!r} was aborted, and would be again as it stands now: "
                    f"{why.removeprefix('aborted: ')}; give it a larger budget to go on with it, "
                    "or try what has failed again (perdure run ... --retry-failed)"
                )
            paused, was_sealed = found.status is RunStatus.PAUSED, found.sealed_at is not None
            change = RunChange(
                run.no,
                found.status,
                found.status if paused else RunStatus.RUNNING,
                why=found.why if paused else "",
                sealed=False,
                settings_json=settings_in(settings),
                seen_sealed=was_sealed,
            )
            moved = self._write_change(change, deed)
            return None if moved is None else (moved, was_sealed)

        return compare_and_set(f"run {run.name!r}", once)

    def _change(
        self,
        run: RunView,
        seen: set[RunStatus],
        status: RunStatus,
        deed: Deed,
        *,
        why: str = "",
        settings_json: str | None = None,
    ) -> RunView:
        def once() -> RunView | None:
            found = self._now(run)
            if found.status not in seen:
                raise NotChangeable(_cannot(found, status))
            change = RunChange(run.no, found.status, status, why=why, settings_json=settings_json)
            return self._write_change(change, deed)

        return compare_and_set(f"run {run.name!r}", once)

    def _write_change(self, change: RunChange, deed: Deed) -> RunView | None:
        run = self.control.change_run(change, deed)
        if run is not None and run.status is not change.seen:
            self.observers.tell(
                EventName.RUN_CHANGED,
                run=run.no,
                run_id=run.id,
                run_name=run.name,
                pipeline=run.pipeline,
                status=run.status.value,
                before=change.seen.value,
                reason=run.why or deed.reason or None,
                total=run.counts.total,
                succeeded=run.counts.succeeded,
                failed=run.counts.failed,
            )
        return run

    def _now(self, run: RunView) -> RunView:
        found = self.reader.run(run.id)
        if found is None:
            raise UnknownName(f"run {run.name!r} is no longer in the store")
        return found


def _check_run_name(name: str) -> None:
    check_name("run", name)
    if name.isdecimal():
        raise CallerError(f"a run cannot be called {name!r}: runs are also found by their numbers")


def _check_open_again(run: RunView, options: Mapping[str, Any]) -> None:
    """Refuse more items for a cancelled run, and another file for the one that a run was fed from."""
    if run.status is RunStatus.CANCELLED:
        raise NotChangeable(
            f"run {run.name!r} of pipeline {run.pipeline!r} was cancelled; take another name"
        )
    before, source = settings_of(run).source, options.get("source")
    if source is not None and before is not None and source != before:
        raise NotChangeable(
            f"run {run.name!r} was fed from {before}, and not from {source}; give this one a name of its own "
            "(--name), or a fresh one (--new)"
        )
    _check_same_key(run, options.get("key"))


def _check_same_key(run: RunView, key: str | None) -> None:
    """Refuse another key than the one that a run's items are known by: all of them would be in it twice."""
    before = settings_of(run).key
    if None in (before, key) or before == key or not run.counts.total:
        return
    same = f"--key {shlex.quote(before)}" if before else "no --key"
    raise NotChangeable(
        f"run {run.name!r} was fed with {_key_words(before)}, and not with {_key_words(key)}: its items would be in it "
        f"twice; go on with the same ({same}), or begin another run (--name, or --new)"
    )


def _key_words(key: str | None) -> str:
    return f"the key {key!r}" if key else "no key"


def find_run(
    reader: Reader, named: str, *, pipeline: str | None = None, owner: str | None = None
) -> RunView:
    """A run by its id, its number or its name; with ``owner``, none of anybody else's."""
    by_id = reader.run(named, owner=owner)
    if by_id is not None:
        return by_id
    if named.isascii() and named.isdecimal() and len(named) < 19:
        by_no = reader.runs(no=int(named), owner=owner)
        if by_no:
            return by_no[0]
    found = reader.runs(name=named, pipeline=pipeline, owner=owner, limit=10)
    if not found:
        raise UnknownName(f"no run {named!r}; see: perdure runs list")
    if len(found) > 1:
        where = ", ".join(
            f"{one.id} (pipeline {one.pipeline}, owner {one.owner!r})" for one in found
        )
        raise CallerError(f"{len(found)} runs are called {named!r}; name one by its id: {where}")
    return found[0]


def _summary(run: RunView) -> str:
    counts = run.counts
    said = f"{counts.succeeded} of {counts.total} succeeded, {counts.failed} failed"
    return said + (f", {counts.cancelled} cancelled" if counts.cancelled else "")


def _cannot(run: RunView, status: RunStatus) -> str:
    wish = {
        RunStatus.PAUSED: "paused; only a running one can",
        RunStatus.RUNNING: "resumed; only a paused or aborted one can",
        RunStatus.CANCELLED: "cancelled, because it is over",
    }[status]
    return f"run {run.name!r} is {run.status.value}; it cannot be {wish}"
