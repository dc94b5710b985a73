"""What operators see and do over HTTP: gates, queues, workers, schedules, figures and the audit log."""

from typing import Annotated

from msgspec import Meta, Struct

from perdure.app.session.metrics import CONTENT_TYPE, check_metrics_extra, metrics_of
from perdure.app.surface import gate_control, queue_control
from perdure.app.surface.gate_control import GateAnswer
from perdure.app.surface.queue_control import QueueAnswer
from perdure.model.access import AccessScope
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.operations import Deed
from perdure.model.views import DeathCount, Depth
from perdure.surfaces.http.endpoints import Endpoint, HttpAnswer, HttpCall
from perdure.surfaces.views import (
    DeedShown,
    FlowShown,
    ScheduleShown,
    WorkerShown,
    deed_shown,
    flow_shown,
    schedule_shown,
    worker_shown,
)


class GateList(Struct, frozen=True):
    """All gates, by name."""

    gates: list[GateAnswer]


class GateAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Why somebody does it; a gate is everybody's, so a reason is asked for."""

    reason: Annotated[str, Meta(min_length=1, max_length=500)]


class HoldAsked(GateAsked, frozen=True, forbid_unknown_fields=True):
    """For how long, as in 10m; until somebody releases it where nothing is said."""

    for_time: Annotated[str, Meta(max_length=50)] | None = None


class ReasonAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Why somebody does it, for the audit log."""

    reason: Annotated[str, Meta(max_length=500)] = ""


class QueueList(Struct, frozen=True):
    """All queues, by name."""

    queues: list[QueueAnswer]


class WorkerList(Struct, frozen=True):
    """Workers that are alive or have unsettled jobs, then the newest dead ones."""

    workers: list[WorkerShown]


class ScheduleList(Struct, frozen=True):
    """Schedules by their next moment."""

    schedules: list[ScheduleShown]


class StatsShown(Struct, frozen=True):
    """How many jobs stand where, what has happened since the store was made, and what jobs have died of."""

    depths: list[Depth]
    flows: list[FlowShown]
    deaths: list[DeathCount]


class AuditLog(Struct, frozen=True):
    """Lines of the audit log, newest first; ``next`` is the cursor of the page after this one."""

    deeds: list[DeedShown]
    next: str | None


class LogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which lines: those about one subject, or all."""

    subject: Annotated[str, Meta(max_length=200)] | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_ROWS_MAX)] = 50
    cursor: Annotated[str, Meta(pattern=r"^[0-9]{1,18}$")] | None = None


def list_gates(call: HttpCall) -> HttpAnswer:
    """List all gates: what holds each, and how fast calls pass."""
    found = gate_control.gates(call.session.opened)
    return HttpAnswer(GateList([gate_control.answer_of(one) for one in found]))


def show_gate(call: HttpCall) -> HttpAnswer:
    """Show one gate."""
    found = gate_control.gate(call.session.opened, call.path["name"])
    return HttpAnswer(gate_control.answer_of(found))


def hold_gate(call: HttpCall) -> HttpAnswer:
    """Hold a gate, for a while or until somebody releases it."""
    name, body = call.path["name"], call.body
    gate_control.hold(
        call.session.opened,
        name,
        by_whom=call.principal.name,
        reason=body.reason,
        for_text=body.for_time,
    )
    return show_gate(call)


def release_gate(call: HttpCall) -> HttpAnswer:
    """Let a gate flow, slowly at first, whatever held it."""
    who, why = call.principal.name, call.body.reason
    gate_control.release(call.session.opened, call.path["name"], by_whom=who, reason=why)
    return show_gate(call)


def probe_gate(call: HttpCall) -> HttpAnswer:
    """Let a held gate send a probe now."""
    who, why = call.principal.name, call.body.reason
    gate_control.probe(call.session.opened, call.path["name"], by_whom=who, reason=why)
    return show_gate(call)


def list_queues(call: HttpCall) -> HttpAnswer:
    """List all queues: what is ready, what waits for later, and whether it is paused."""
    found = queue_control.queues(call.session.opened)
    return HttpAnswer(QueueList([queue_control.answer_of(one) for one in found]))


def pause_queue(call: HttpCall) -> HttpAnswer:
    """Claim no job of a queue until it is resumed."""
    queue_control.pause(call.session.opened, call.path["name"], _deed(call))
    return list_queues(call)


def resume_queue(call: HttpCall) -> HttpAnswer:
    """Let the jobs of a paused queue be claimed again."""
    queue_control.resume(call.session.opened, call.path["name"], _deed(call))
    return list_queues(call)


def list_workers(call: HttpCall) -> HttpAnswer:
    """List the workers that are alive, and the newest dead ones."""
    found = call.session.opened.reader.workers()
    return HttpAnswer(WorkerList([worker_shown(one) for one in found]))


def list_schedules(call: HttpCall) -> HttpAnswer:
    """List the periodic jobs by their next moment."""
    found = call.session.opened.reader.schedules()
    return HttpAnswer(ScheduleList([schedule_shown(one) for one in found]))


def show_stats(call: HttpCall) -> HttpAnswer:
    """Show how many jobs stand where, and what has happened, from the tallies."""
    reader = call.session.opened.reader
    flows = [flow_shown(one) for one in reader.flows()]
    return HttpAnswer(StatsShown(reader.depths(), flows, reader.deaths()))


def show_metrics(call: HttpCall) -> HttpAnswer:
    """Show the metrics of the store and of this process, for Prometheus."""
    check_metrics_extra("/metrics")
    return HttpAnswer(metrics_of(call.session))


def list_deeds(call: HttpCall) -> HttpAnswer:
    """List the audit log, newest first."""
    query: LogQuery = call.query
    before = None if query.cursor is None else int(query.cursor)
    reader = call.session.opened.reader
    found = reader.deeds(subject=query.subject, limit=query.limit, before=before)
    after = str(found[-1].no) if len(found) == query.limit else None
    return HttpAnswer(AuditLog([deed_shown(one) for one in found], after))


_READ_ALL, _ADMIN = AccessScope.READ_ALL, AccessScope.ADMIN
_GONE = ("not_found",)

ENDPOINTS = (
    Endpoint("GET", "/api/gates", list_gates, _READ_ALL, GateList),
    Endpoint("GET", "/api/gates/{name}", show_gate, _READ_ALL, GateAnswer, problems=_GONE),
    Endpoint("POST", "/api/gates/{name}/hold", hold_gate, _ADMIN, GateAnswer, HoldAsked, problems=_GONE),
    Endpoint("POST", "/api/gates/{name}/release", release_gate, _ADMIN, GateAnswer, GateAsked, problems=_GONE),
    Endpoint("POST", "/api/gates/{name}/probe", probe_gate, _ADMIN, GateAnswer, GateAsked, problems=_GONE),
    Endpoint("GET", "/api/queues", list_queues, _READ_ALL, QueueList),
    Endpoint("POST", "/api/queues/{name}/pause", pause_queue, _ADMIN, QueueList, ReasonAsked, problems=_GONE),
    Endpoint("POST", "/api/queues/{name}/resume", resume_queue, _ADMIN, QueueList, ReasonAsked, problems=_GONE),
    Endpoint("GET", "/api/workers", list_workers, _READ_ALL, WorkerList),
    Endpoint("GET", "/api/schedules", list_schedules, _READ_ALL, ScheduleList),
    Endpoint("GET", "/api/stats", show_stats, _READ_ALL, StatsShown),
    Endpoint("GET", "/metrics", show_metrics, _READ_ALL, bytes, media_type=CONTENT_TYPE),
    Endpoint("GET", "/api/audit-log", list_deeds, _READ_ALL, AuditLog, query=LogQuery),
)  # fmt: skip


def _deed(call: HttpCall) -> Deed:
    return Deed(call.principal.name, call.body.reason)
