"""Captures over HTTP: raw output that the attempts of a job have put aside, for its owner and admins alone."""

from msgspec import Struct

from perdure.app.surface.serving import TRACEBACK
from perdure.model.access import AccessScope
from perdure.model.views import CaptureView, JobView
from perdure.surfaces.http.endpoints import Endpoint, HttpAnswer, HttpCall
from perdure.surfaces.http.problems import Refused
from perdure.surfaces.views import CaptureShown, capture_shown


class CaptureList(Struct, frozen=True):
    """What the attempts of a job have put aside, oldest first; tracebacks are for admins alone."""

    captures: list[CaptureShown]


def list_captures(call: HttpCall) -> HttpAnswer:
    """List the raw output that the attempts of a job have put aside."""
    found = call.session.opened.reader.captures(_seen_wholly(call).no)
    return HttpAnswer(CaptureList([capture_shown(one) for one in found if _may_read(call, one)]))


def fetch_capture(call: HttpCall) -> HttpAnswer:
    """Fetch one capture as it is, byte for byte."""
    job, reader = _seen_wholly(call), call.session.opened.reader
    found = reader.capture(call.path["capture"], owner=call.principal.acts_on)
    if found is None or found[0].job_no != job.no or not _may_read(call, found[0]):
        raise Refused("not_found")
    named = {"content-disposition": f'attachment; filename="capture-{found[0].id}"'}
    return HttpAnswer(found[1], headers=named)


_READ, _GONE = AccessScope.READ, ("not_found",)
ENDPOINTS = (
    Endpoint("GET", "/api/jobs/{id}/captures", list_captures, _READ, CaptureList, problems=_GONE),
    Endpoint(
        "GET", "/api/jobs/{id}/captures/{capture}", fetch_capture, _READ, bytes, problems=_GONE
    ),
)


def _seen_wholly(call: HttpCall) -> JobView:
    """The job of the path, if the principal is its owner or an admin: raw output is for nobody else."""
    owner = call.principal.acts_on
    job = None if owner == "" else call.session.opened.reader.job(call.path["id"], owner=owner)
    if job is None:
        raise Refused("not_found")
    return job


def _may_read(call: HttpCall, capture: CaptureView) -> bool:
    """A traceback shows the insides of the application."""
    return capture.kind != TRACEBACK or call.principal.may(AccessScope.ADMIN)
