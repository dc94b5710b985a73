"""Dead letters over HTTP: listed and grouped, driven again or discarded in bulk, by their owner or an operator."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from perdure.app.dead_letters import DeadLetters, Redrive, redrive_settings
from perdure.app.job_filters import dead_meant
from perdure.app.surface import serving
from perdure.model.access import AccessScope
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.operations import BulkStatus, BulkView, Deed
from perdure.surfaces.http.endpoints import Cursor, Endpoint, HttpAnswer, HttpCall, number_at
from perdure.surfaces.http.jobs import JobPage
from perdure.surfaces.http.problems import Refused, blame_caller
from perdure.surfaces.views import BulkShown, LetterGroup, bulk_shown, group_shown, job_answers

Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Letters(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters; all that is given must hold. ``owner`` is for those who reach everybody's."""

    pipeline: Name | None = None
    stage: Name | None = None
    kind: Name | None = None
    code: Name | None = None
    fingerprint: Name | None = None
    owner: Annotated[str, Meta(max_length=100)] | None = None
    older_than: Name | None = None
    newer_than: Name | None = None


class GroupQuery(Letters, frozen=True, forbid_unknown_fields=True):
    """Which dead letters, and how many groups of them."""

    limit: Annotated[int, Meta(ge=1, le=PAGE_ROWS_MAX)] = 50


class LetterQuery(GroupQuery, frozen=True, forbid_unknown_fields=True):
    """Which dead letters, and how many of them."""

    cursor: Cursor | None = None


class LetterGroups(Struct, frozen=True):
    """The groups, most frequent first."""

    groups: list[LetterGroup]


class Eligible(Struct, frozen=True):
    """What a re-drive would do now; ``capped`` when there are more than were looked at."""

    count: int
    eligible: int
    refused: dict[str, int]
    capped: bool


class RedriveAsked(Letters, frozen=True, forbid_unknown_fields=True):
    """Which dead letters are to be driven again, and how gently."""

    from_start: bool = False
    canary: Annotated[int, Meta(ge=0, le=10_000)] = 0
    rate: Annotated[str, Meta(max_length=50)] | None = None
    reason: Annotated[str, Meta(max_length=500)] = ""


class DiscardAsked(Letters, frozen=True, forbid_unknown_fields=True):
    """Which dead letters are dealt with."""

    reason: Annotated[str, Meta(max_length=500)] = ""


class BulkQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many bulk operations, and whether only those under way."""

    running: bool = False
    limit: Annotated[int, Meta(ge=1, le=PAGE_ROWS_MAX)] = 50


class BulkList(Struct, frozen=True):
    """Bulk operations, newest first."""

    bulks: list[BulkShown]


class StopAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Why somebody stops it or lets it go on."""

    reason: Annotated[str, Meta(max_length=500)] = ""


def list_letters(call: HttpCall) -> HttpAnswer:
    """List dead letters, newest first."""
    query: LetterQuery = call.query
    reader, before = call.session.opened.reader, None
    meant = dead_meant(call.session, _chosen(query, call.principal.sees), strict=False)
    if query.cursor is not None:
        before = number_at(reader.job(query.cursor, owner=call.principal.sees))
    found = reader.jobs(meant, limit=query.limit, before=before)
    after = found[-1].id if len(found) == query.limit else None
    return HttpAnswer(JobPage(job_answers(call.session, found), None, after))


def group_letters(call: HttpCall) -> HttpAnswer:
    """Group dead letters by how they failed, most frequent first."""
    query: GroupQuery = call.query
    meant = dead_meant(call.session, _chosen(query, call.principal.sees), strict=False)
    found = call.session.opened.reader.dead_groups(meant, limit=query.limit)
    return HttpAnswer(LetterGroups([group_shown(one) for one in found]))


def preview_redrive(call: HttpCall) -> HttpAnswer:
    """Say what a re-drive would do, and do nothing."""
    body: RedriveAsked = call.body
    chosen = _chosen(body, call.principal.acts_on)
    with blame_caller():
        redrive_settings(None, body.from_start, body.canary, 0.0, body.rate)
    found = DeadLetters(call.session).preview(from_start=body.from_start, **chosen)
    refused = {one.why: one.count for one in found.refused}
    return HttpAnswer(Eligible(found.count, found.eligible, refused, found.capped))


def redrive_letters(call: HttpCall) -> HttpAnswer:
    """Drive dead letters of one pipeline again, in a run of their own; workers do it."""
    body: RedriveAsked = call.body
    with blame_caller():
        begun = DeadLetters(call.session).redrive(
            from_start=body.from_start,
            canary=body.canary,
            rate=body.rate,
            reason=body.reason,
            by=call.principal.name,
            **_chosen(body, call.principal.acts_on),
        )
    return HttpAnswer(bulk_shown(begun.view()), 202, {"location": f"/api/dead/bulks/{begun.id}"})


def discard_letters(call: HttpCall) -> HttpAnswer:
    """Mark dead letters as dealt with, a thousand at once; with 202 workers go on with the rest."""
    body: DiscardAsked = call.body
    deed, chosen = Deed(call.principal.name, body.reason), _chosen(body, call.principal.acts_on)
    bulk = serving.discard_letters(call.session, chosen, deed)
    status = 202 if bulk.status is BulkStatus.RUNNING else 200
    return HttpAnswer(bulk_shown(bulk), status, {"location": f"/api/dead/bulks/{bulk.id}"})


def list_bulks(call: HttpCall) -> HttpAnswer:
    """List re-drives, discards and what else was done to many jobs at once, newest first."""
    query: BulkQuery = call.query
    found = call.session.opened.reader.bulks(
        running=query.running, owner=call.principal.sees, limit=query.limit
    )
    return HttpAnswer(BulkList([bulk_shown(one) for one in found]))


def show_bulk(call: HttpCall) -> HttpAnswer:
    """Show how far a re-drive or a discard is."""
    return HttpAnswer(bulk_shown(_bulk(call, call.principal.sees)))


def stop_bulk(call: HttpCall) -> HttpAnswer:
    """Let a re-drive or a discard take on no more; what lives again goes on."""
    found = Redrive(call.session, _bulk(call, call.principal.acts_on))
    return HttpAnswer(bulk_shown(found.stop(reason=call.body.reason, by=call.principal.name)))


def resume_bulk(call: HttpCall) -> HttpAnswer:
    """Let a re-drive or a discard that was stopped go on where it stands."""
    found = Redrive(call.session, _bulk(call, call.principal.acts_on))
    return HttpAnswer(bulk_shown(found.resume(reason=call.body.reason, by=call.principal.name)))


_READ, _OPERATE = AccessScope.READ, AccessScope.OPERATE
_GONE = ("not_found",)
_DONE = (*_GONE, "not_changeable")

ENDPOINTS = (
    Endpoint("GET", "/api/dead", list_letters, _READ, JobPage, query=LetterQuery, problems=("cursor_too_old",)),
    Endpoint("GET", "/api/dead/groups", group_letters, _READ, LetterGroups, query=GroupQuery),
    Endpoint("POST", "/api/dead/preview", preview_redrive, _OPERATE, Eligible, RedriveAsked, problems=_GONE),
    Endpoint("POST", "/api/dead/redrive", redrive_letters, _OPERATE, BulkShown, RedriveAsked, statuses=(202,), problems=_GONE),
    Endpoint("POST", "/api/dead/discard", discard_letters, _OPERATE, BulkShown, DiscardAsked, statuses=(200, 202), problems=_GONE),
    Endpoint("GET", "/api/dead/bulks", list_bulks, _READ, BulkList, query=BulkQuery),
    Endpoint("GET", "/api/dead/bulks/{id}", show_bulk, _READ, BulkShown, problems=_GONE),
    Endpoint("POST", "/api/dead/bulks/{id}/stop", stop_bulk, _OPERATE, BulkShown, StopAsked, problems=_DONE),
    Endpoint("POST", "/api/dead/bulks/{id}/resume", resume_bulk, _OPERATE, BulkShown, StopAsked, problems=_DONE),
)  # fmt: skip


def _chosen(asked: Letters, reach: str | None) -> dict[str, Any]:
    """The filter, with the owner that the principal reaches, whatever was asked for."""
    if reach is not None and asked.owner not in (None, reach):
        raise Refused("forbidden", "this token reaches the jobs of its own owner only")
    given = {name: getattr(asked, name) for name in Letters.__struct_fields__}
    given["owner"] = asked.owner if reach is None else reach
    return {name: value for name, value in given.items() if value is not None}


def _bulk(call: HttpCall, owner: str | None) -> BulkView:
    found = call.session.opened.reader.bulks(id=call.path["id"], owner=owner)
    if not found:
        raise Refused("not_found")
    return found[0]
