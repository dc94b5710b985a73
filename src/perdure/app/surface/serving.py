"""What a server does for those outside: items to a pipeline by its name, a worker beside it, and words for its log."""

import re
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from typing import Any

import msgspec

from perdure.app.calling.calls import terms_of
from perdure.app.job_filters import dead_meant
from perdure.app.job_refs import Called, JobRef
from perdure.app.pipelines import Pipeline
from perdure.app.session.session import Session
from perdure.app.worker.embedded import EmbeddedWorker
from perdure.engine.attempt.captures import TRACEBACK
from perdure.engine.enqueue import Item
from perdure.engine.gates.upstreams import rate_per_s
from perdure.engine.observe import trace_of
from perdure.engine.operate.feed_listeners import Listener
from perdure.model.errors import StoreError, UnknownName
from perdure.model.jobs import OnLost
from perdure.model.operations import BulkView, Deed
from perdure.model.views import JobView
from perdure.observers.log import write_logs
from perdure.rules.field_checks import nearest

__all__ = [
    "TRACEBACK",
    "Item",
    "Listener",
    "begin_call",
    "discard_letters",
    "is_item_of",
    "owner_rate",
    "pipeline_named",
    "trace_of",
    "why_not_ready",
    "working",
    "write_server_log",
]

_DISCARD_STEPS_MAX = 5  # pages that a request discards itself; workers go on


def pipeline_named(session: Session, name: str) -> Pipeline:
    """A pipeline that the app declares."""
    laid = session.laid_pipelines.get(name)
    if laid is None:
        raise UnknownName(f"no pipeline {name!r} here; {nearest(name, session.laid_pipelines)}")
    return Pipeline(session, laid)


def begin_call(
    session: Session,
    pipe: Pipeline,
    item: Any,
    *,
    wait_s: float,
    owner: str,
    key: str | None,
    request_id: str,
) -> tuple[JobRef, Future[Called]]:
    """Have a job done in this process, on the loop that the app keeps for calls: the job, which is stored by now, and what comes of it.

    So no stage holds up the server's own loop, and no thread of the server's waits.
    """
    begun: Future[str] = Future()
    terms = terms_of(session.sync_policies[pipe.name], wait_s, OnLost.HAND_OVER)
    over = session.calls.send(
        lambda: pipe._make_call(
            item, terms, owner=owner, key=key, request_id=request_id, begun=begun.set_result
        )
    )
    over.add_done_callback(lambda _: begun.cancel())  # does nothing where it has begun
    try:
        return JobRef(begun.result(), True, session, owner), over
    except CancelledError:
        over.result()  # says why it could not begin
        raise


def is_item_of(session: Session, job: JobView, item: Any) -> bool:
    """Whether a job was made with this item, whatever the order of its fields; a corrected one may have taken its place since."""
    wanted = msgspec.json.encode(item, order="sorted")
    texts = [
        job.payload_json,
        *(one.payload_json for one in session.opened.reader.payloads(job.no)),
    ]
    return any(
        msgspec.json.encode(msgspec.json.decode(text), order="sorted") == wanted for text in texts
    )


def discard_letters(session: Session, chosen: Mapping[str, Any], deed: Deed) -> BulkView:
    """Discard dead letters, the first thousand of them at once; workers go on with the rest, and it can be stopped."""
    meant, bulks = dead_meant(session, chosen), session.bulks
    bulk = bulks.begin_discard(meant, deed=deed, bulk_id=session.ids.next())
    return bulks.through(bulk, steps_max=_DISCARD_STEPS_MAX)


def why_not_ready(session: Session) -> str:
    """Why a server cannot serve, in a word: of the store, of its schema, or of the worker beside it; empty where it can."""
    try:
        session.opened.check_schema()
    except StoreError as error:
        return error.code
    return next((why for check in session.workers_here if (why := check())), "")


def working(session: Session, concurrency: int | None) -> EmbeddedWorker:
    """A worker inside this process, for as long as the block lasts."""
    settings = session.settings.with_given({"concurrency": concurrency}, given_as="option")
    return EmbeddedWorker(session, settings.config, queues=(), categories=())


def write_server_log(session: Session) -> None:
    """Write the log to standard error, as the settings say: as a worker does."""
    config = session.settings.config
    write_logs(form=config.log_format, level=config.log_level)


def owner_rate(rate: str | None) -> tuple[int, float] | None:
    """How many requests may come at once and every how many seconds one more: ``"50/s"`` is 50, and one every 20 ms."""
    per_s = rate_per_s("rate_per_owner", rate)
    if per_s is None:
        return None
    count = re.match(r"\s*([0-9_.]+)", str(rate))
    burst = per_s if count is None else float(count[1].replace("_", ""))
    return max(1, int(burst)), 1 / per_s
