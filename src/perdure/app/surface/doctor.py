"""What the doctor looks at: settings and stages in this process, then the store; each look ends in one diagnosis.

Nothing is written, and no store is made. A store that cannot be opened is a diagnosis, too, and the last one.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime

from perdure.app.session.opening import open_store
from perdure.app.session.session import Session
from perdure.app.session.settings import Settings, load_settings
from perdure.app.surface.nested_retries import nested_retries
from perdure.config import AT_ODDS, misspelt_variables, settings_file
from perdure.engine.batch.runs import unfed_at
from perdure.engine.batch.unattended import workers_alive
from perdure.engine.clock import SystemClock
from perdure.engine.gates.changes import VERBS
from perdure.engine.stages import Stage
from perdure.model.diagnoses import Diagnosis, Severity
from perdure.model.errors import ConfigError, StoreError
from perdure.model.filters import JobFilter
from perdure.model.gates import GateState
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.states import State
from perdure.ports import Clock, Reader
from perdure.rules.diagnosis import process_setup, store_condition, unmoved_work
from perdure.rules.diagnosis.lines import fail, ok
from perdure.rules.gate.gate import GateMove
from perdure.stores.opening import Opened
from perdure.stores.urls import POSTGRES, shown_url

__all__ = ["Diagnosis", "Severity", "examine"]

_STORE_REMEDY = "see: perdure db status; of PostgreSQL: docs/postgres.md#when-it-does-not-work"
_FLOWS = {VERBS[one] for one in (GateMove.RELEASE, GateMove.FLOW, GateMove.RESUME)}
_DEED_PAGES_MAX = 4  # a probe a second writes one in four minutes; what is older is old enough
_LOOKED_AT = 50  # of the jobs that are ready in a stage, the newest


def examine(
    session: Session | None, *, store: str | None = None, serve_host: str | None = None
) -> list[Diagnosis]:
    """All there is to say, with an app or about a store alone."""
    given = {"serve_host": serve_host, "store": store}
    try:
        settings = load_settings() if session is None else session.settings
        settings = settings.with_given(given, given_as="option")
    except ConfigError as wrong:
        return [fail("settings", str(wrong), "mend it, and ask again")]
    url = settings.config.store if session is None else session.url
    found = [_settings(settings), *([] if session is None else _stages(session, settings))]
    connections = settings.config.connections
    try:
        opened = open_store(url, create=False, read_only=True, connections=connections)
        with closing(opened):
            return [*found, *store_diagnoses(opened, settings, session, url=url)]
    except (StoreError, ConfigError) as wrong:
        return [*found, fail("store", str(wrong), _STORE_REMEDY)]


def _settings(settings: Settings) -> Diagnosis:
    at_odds = [words(settings.config) for is_odd, words in AT_ODDS if is_odd(settings.config)]
    return process_setup.settings_diagnosis(
        settings_file(os.environ), at_odds, misspelt_variables(os.environ)
    )


def _stages(session: Session, settings: Settings) -> Iterator[Diagnosis]:
    stages: dict[str, Stage] = {
        f"{laid.name}/{stage.name}": stage
        for laid in session.laid_pipelines.values()
        for stage in laid.stages
    }
    timeouts_s = {name: stage.timeout_s for name, stage in stages.items()}
    yield process_setup.grace_diagnosis(settings.config.grace_s, timeouts_s)
    different = {id(stage): stage for stage in stages.values()}
    yield process_setup.retries_diagnosis(
        [words for stage in different.values() for words in nested_retries(stage)]
    )


def store_diagnoses(
    opened: Opened,
    settings: Settings,
    session: Session | None,
    *,
    url: str,
    clock: Clock | None = None,
) -> Iterator[Diagnosis]:
    """What is to be said of a store that is open; ``clock`` is this machine's."""
    reader, config = opened.reader, settings.config
    found, (ahead_s, round_trip_s) = reader.condition(), _clocks(reader, clock or SystemClock())
    yield ok("store", f"{shown_url(url)} answers, and its schema is what this version needs")
    yield store_condition.version_diagnosis(found)
    yield store_condition.rights_diagnosis(found)
    yield store_condition.clock_diagnosis(found, ahead_s, round_trip_s)
    yield process_setup.lease_diagnosis(
        lease_ttl_s=config.lease_ttl_s,
        grace_s=config.grace_s,
        overrun_s=config.overrun_s,
        overrun_said=settings.origin("overrun_s") != "default",
        round_trip_s=round_trip_s,
    )
    yield store_condition.disk_diagnosis(found)
    if url.startswith(POSTGRES):
        yield store_condition.vacuum_diagnosis(found)
        yield store_condition.snapshot_diagnosis(found)
        yield store_condition.pooler_diagnosis(found, config.poll_s)
    else:
        yield store_condition.file_system_diagnosis(found)
    looks: tuple[tuple[str, Callable[[], Diagnosis]], ...] = (
        ("listen", lambda: _listening(reader, config.serve_host)),
        ("gates", lambda: unmoved_work.gates_diagnosis(_held_gates(reader))),
        (
            "dead_letters",
            lambda: unmoved_work.dead_diagnosis(reader.flows(minutes=True), reader.deaths()),
        ),
        ("runs", lambda: _runs(reader)),
        ("lanes", lambda: _lanes(reader, session)),
    )
    for check, look in looks:
        yield _line(check, look)


def _line(check: str, look: Callable[[], Diagnosis]) -> Diagnosis:
    """What a look finds; one that the store refuses, for want of a right say, takes no other with it."""
    try:
        return look()
    except StoreError as wrong:
        return fail(check, str(wrong), _STORE_REMEDY)


def _clocks(reader: Reader, clock: Clock) -> tuple[float, float]:
    """How far the store's clock is ahead of ours, and how long it took to ask."""
    reader.now()  # so that the line is there
    before, begun_s = clock.now(), clock.monotonic()
    theirs = reader.now()
    round_trip_s = clock.monotonic() - begun_s
    return (theirs - before).total_seconds() - round_trip_s / 2, round_trip_s


def _listening(reader: Reader, host: str) -> Diagnosis:
    tokens, now = reader.access_tokens(), reader.now()
    good = sum(one.is_good(now) for one in tokens)
    return process_setup.listen_diagnosis(host, tokens=len(tokens), good=good)


def _runs(reader: Reader) -> Diagnosis:
    live, now = reader.runs(live=True, limit=PAGE_ROWS_MAX), reader.now()
    unfed = [
        f"run {run.name} (number {run.no}) is fed by nobody since {at:%Y-%m-%d %H:%M} UTC"
        for run in live
        if (at := unfed_at(run, now))
    ]
    return unmoved_work.runs_diagnosis(unfed, len(live))


def _lanes(reader: Reader, session: Session | None) -> Diagnosis:
    now = reader.now()
    waiting, hour = _waiting(reader, session, now), reader.flows(minutes=True)
    unmoved = unmoved_work.unmoved_stages(waiting, reader.depths(), hour, now)
    return unmoved_work.lanes_diagnosis(unmoved, workers_alive(reader))


def _held_gates(reader: Reader) -> list[unmoved_work.HeldGate]:
    rows, lanes, now = reader.gates(), reader.lanes(), reader.now()
    behind = {
        row.name: {row.name, *(one.name for one in rows if one.parent == row.name)} for row in rows
    }
    return [
        unmoved_work.HeldGate(
            row.name,
            (now - _held_since(reader, row.name, now)).total_seconds(),
            row.reason,
            sum(one.ready + one.later for one in lanes if one.lane.upstream in behind[row.name]),
        )
        for row in rows
        if row.state is not GateState.FLOWING
    ]


def _held_since(reader: Reader, name: str, now: datetime) -> datetime:
    """Since when a gate does not flow: its row says only since when it is held or probing, and it goes to and fro."""
    since, before = now, None
    for _ in range(_DEED_PAGES_MAX):
        page = reader.deeds(subject=name, limit=PAGE_ROWS_MAX, before=before)
        for deed in page:
            if deed.verb in _FLOWS:
                return since
            since, before = deed.done_at, deed.no
        if len(page) < PAGE_ROWS_MAX:
            break
    return since


def _waiting(
    reader: Reader, session: Session | None, now: datetime
) -> list[unmoved_work.WaitingStage]:
    """Stages of which jobs stand ready in lanes that nothing closes."""
    known = None if session is None else {(one.pipeline, one.stage) for one in session.lanes}
    ready: dict[tuple[str, str, str], int] = {}
    for one in reader.lanes():
        if one.open and one.ready:
            place = (one.lane.queue, one.lane.pipeline, one.lane.stage)
            ready[place] = ready.get(place, 0) + one.ready
    return [
        unmoved_work.WaitingStage(
            queue,
            pipeline,
            stage,
            count,
            _waited_s(reader, queue, pipeline, stage, now),
            None if known is None else (pipeline, stage) in known,
        )
        for (queue, pipeline, stage), count in ready.items()
    ]


def _waited_s(reader: Reader, queue: str, pipeline: str, stage: str, now: datetime) -> float:
    """For how long one of the newest jobs that are ready could have started."""
    chosen = JobFilter(
        states=(State.QUEUED,), queue=queue, pipeline=pipeline, stage=stage, waiting=False
    )
    jobs = [one for one in reader.jobs(chosen, limit=_LOOKED_AT) if one.ready]
    since = (max(one.due_at, one.updated_at) for one in jobs)
    return max(((now - one).total_seconds() for one in since), default=0.0)
