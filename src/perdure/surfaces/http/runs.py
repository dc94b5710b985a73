"""Runs over HTTP: begun, fed in requests of bounded size, paused, resumed, sealed, cancelled, and their results fetched.

Items come as JSON Lines, each with a key. A client that died in the midst begins its run again by the same name and sends
what it is not sure of once more: what is in is known by its key.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from perdure.app.runs import Run
from perdure.app.surface.serving import Item
from perdure.model.access import AccessScope
from perdure.model.errors import NotChangeable
from perdure.model.limits import KEY_CHARS_MAX, PAGE_ROWS_MAX
from perdure.model.runs import RunView
from perdure.surfaces.http.endpoints import (
    ITEMS_MAX,
    Cursor,
    Endpoint,
    HttpAnswer,
    HttpCall,
    number_at,
)
from perdure.surfaces.http.jobs import pipeline_asked
from perdure.surfaces.http.problems import Refused, blame_caller
from perdure.surfaces.run_views import RunReport, RunShown, report_shown, run_shown
from perdure.surfaces.views import ErrorShown, under_names

Text = Annotated[str, Meta(min_length=1, max_length=100)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class RunAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """A run to be begun, or gone on with: the same owner, pipeline and name are the same run. Money is a decimal text: ``"2.50"``."""

    pipeline: Text
    name: Text
    failure_budget: Share | None = None
    cost_max_usd: Annotated[str, Meta(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?$")] | None = None


class RunItemAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of items. The key is what it is known by in this run."""

    key: Annotated[str, Meta(min_length=1, max_length=KEY_CHARS_MAX)]
    item: Any
    priority: Annotated[int, Meta(ge=-1_000, le=1_000)] = 0


class RunPage(Struct, frozen=True):
    """Runs, newest first; ``next`` is the cursor of the page after this one."""

    runs: list[RunShown]
    next: str | None


class RunQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs."""

    pipeline: Text | None = None
    name: Text | None = None
    live: bool = False
    limit: Annotated[int, Meta(ge=1, le=PAGE_ROWS_MAX)] = 50
    cursor: Cursor | None = None


class TakenItems(Struct, frozen=True):
    """How far it got: so many lines were taken, of which so many are new, and the run as it is now."""

    items: int
    created: int
    known: int
    run: RunShown


class RunDeedAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Why somebody does it; with a larger budget an aborted run goes on."""

    reason: Annotated[str, Meta(max_length=500)] = ""
    failure_budget: Share | None = None


class RunResult(Struct, frozen=True):
    """A line of results."""

    id: str
    key: str | None
    ok: bool
    value: Any
    error: ErrorShown | None


def create_run(call: HttpCall) -> HttpAnswer:
    """Begin a run, or go on with the one of that name; items follow."""
    body: RunAsked = call.body
    with blame_caller():
        run = pipeline_asked(call, body.pipeline).run(
            [],
            name=body.name,
            owner=call.principal.owner,
            failure_budget=body.failure_budget,
            cost_max_usd=None if body.cost_max_usd is None else float(body.cost_max_usd),
            seal=False,
        )
    return HttpAnswer(run_shown(run.view()), 201, {"location": f"/api/runs/{run.id}"})


def list_runs(call: HttpCall) -> HttpAnswer:
    """List runs, newest first."""
    query: RunQuery = call.query
    reader, owner, cursor = call.session.opened.reader, call.principal.sees, query.cursor
    found = reader.runs(
        pipeline=query.pipeline,
        name=query.name,
        owner=owner,
        live=query.live,
        limit=query.limit,
        before=None if cursor is None else number_at(reader.run(cursor, owner=owner)),
    )
    after = found[-1].id if len(found) == query.limit else None
    return HttpAnswer(RunPage([run_shown(one) for one in found], after))


def show_run(call: HttpCall) -> HttpAnswer:
    """Show a run and how many of its items stand where."""
    return HttpAnswer(run_shown(_found(call, call.principal.sees)))


def add_items(call: HttpCall) -> HttpAnswer:
    """Put items into a run; what is in by its key is known, and nothing is done twice."""
    run = _found(call, call.principal.acts_on)
    if run.sealed_at is not None:
        raise NotChangeable("the run is sealed: all of its items are in")
    if len(call.body) > ITEMS_MAX:
        raise Refused(
            "too_large", f"a request may have {ITEMS_MAX:,} items; send the rest in others"
        )
    items = [
        Item(one.item, key=one.key, priority=one.priority, request_id=call.request_id)
        for one in call.body
    ]
    fed = pipeline_asked(call, run.pipeline).run(
        items, name=run.name, owner=run.owner, backlog_max=None, seal=False
    )
    assert fed.fed is not None
    taken = fed.fed
    known = taken.known + taken.repeated
    return HttpAnswer(TakenItems(taken.items, taken.created, known, run_shown(fed.view())))


def seal_run(call: HttpCall) -> HttpAnswer:
    """Say that all items of a run are in."""
    run = _own(call)
    run.seal()
    return HttpAnswer(run_shown(run.view()))


def pause_run(call: HttpCall) -> HttpAnswer:
    """Claim none of a run's items until it is resumed."""
    run = _own(call)
    run.pause(reason=call.body.reason, by=call.principal.name)
    return HttpAnswer(run_shown(run.view()))


def resume_run(call: HttpCall) -> HttpAnswer:
    """Go on with a paused or aborted run, with another budget if one is given."""
    run, body = _own(call), call.body
    run.resume(failure_budget=body.failure_budget, reason=body.reason, by=call.principal.name)
    return HttpAnswer(run_shown(run.view()))


def cancel_run(call: HttpCall) -> HttpAnswer:
    """Cancel a run and its open items."""
    run = _own(call)
    run.cancel(reason=call.body.reason, by=call.principal.name)
    return HttpAnswer(run_shown(run.view()))


def show_report(call: HttpCall) -> HttpAnswer:
    """Report how a run went: retries, errors, stages, waste, time to success; walks over all its attempts."""
    return HttpAnswer(report_shown(Run(call.session, _found(call, call.principal.sees)).report()))


def fetch_results(call: HttpCall) -> HttpAnswer:
    """Stream what has ended by now, a line each, in the order of the items."""
    run = _found(call, call.principal.sees)
    aliases = call.session.aliases_of(run.pipeline)
    return HttpAnswer(_results(Run(call.session, run), aliases))


_SUBMIT, _READ, _OPERATE = AccessScope.SUBMIT, AccessScope.READ, AccessScope.OPERATE
_GONE = ("not_found",)
_MOVED = (*_GONE, "not_changeable")

ENDPOINTS = (
    Endpoint("POST", "/api/runs", create_run, _SUBMIT, RunShown, RunAsked, statuses=(201,), problems=_MOVED),
    Endpoint("GET", "/api/runs", list_runs, _READ, RunPage, query=RunQuery, problems=("cursor_too_old",)),
    Endpoint("GET", "/api/runs/{id}", show_run, _READ, RunShown, problems=_GONE),
    Endpoint("GET", "/api/runs/{id}/report", show_report, _READ, RunReport, problems=_GONE),
    Endpoint("POST", "/api/runs/{id}/items", add_items, _SUBMIT, TakenItems, RunItemAsked, problems=(*_MOVED, "payload_refused", "too_many_open_jobs"), lines=True, makes=len),
    Endpoint("POST", "/api/runs/{id}/seal", seal_run, _SUBMIT, RunShown, problems=_MOVED),
    Endpoint("POST", "/api/runs/{id}/pause", pause_run, _OPERATE, RunShown, RunDeedAsked, problems=_MOVED),
    Endpoint("POST", "/api/runs/{id}/resume", resume_run, _OPERATE, RunShown, RunDeedAsked, problems=_MOVED),
    Endpoint("POST", "/api/runs/{id}/cancel", cancel_run, _OPERATE, RunShown, RunDeedAsked, problems=_MOVED),
    Endpoint("GET", "/api/runs/{id}/results", fetch_results, _READ, RunResult, problems=_GONE, streams=True),
)  # fmt: skip


def _found(call: HttpCall, owner: str | None) -> RunView:
    run = call.session.opened.reader.run(call.path["id"], owner=owner)
    if run is None:
        raise Refused("not_found")
    return run


def _own(call: HttpCall) -> Run:
    return Run(call.session, _found(call, call.principal.acts_on))


def _results(run: Run, aliases: Mapping[str, str]) -> Iterator[RunResult]:
    for one in run.results(wait=False):
        error = None
        if not one.ok:
            error = ErrorShown(one.error_code or "", one.error_kind or "", one.error or "")
        shown = RunResult(one.job_id, one.key, one.ok, one.value if one.ok else None, error)
        yield under_names(shown, aliases)
