"""What a server does for those outside: items to a pipeline by its name, a worker beside it, and words for its log."""

import re
from collections.abc import Mapping
from typing import Any

from perdure.app.job_filters import dead_meant
from perdure.app.pipelines import Pipeline
from perdure.app.session.session import Session
from perdure.app.worker.embedded import EmbeddedWorker
from perdure.config import load
from perdure.engine.attempt.captures import TRACEBACK
from perdure.engine.enqueue import Item
from perdure.engine.gates.upstreams import rate_per_s
from perdure.engine.observe import trace_of
from perdure.engine.operate.feed_listeners import Listener
from perdure.model.errors import UnknownName
from perdure.model.operations import BulkView, Deed
from perdure.observers.log import write_logs

__all__ = [
    "TRACEBACK",
    "Item",
    "Listener",
    "discard_letters",
    "owner_rate",
    "pipeline_named",
    "trace_of",
    "working",
    "write_server_log",
]

_DISCARD_STEPS_MAX = 5  # pages that a request discards itself; workers go on


def pipeline_named(session: Session, name: str) -> Pipeline:
    """A pipeline that the app declares."""
    laid = session.laid_pipelines.get(name)
    if laid is None:
        raise UnknownName(f"no pipeline {name!r} here")
    return Pipeline(session, laid)


def discard_letters(session: Session, chosen: Mapping[str, Any], deed: Deed) -> BulkView:
    """Discard dead letters, the first thousand of them at once; workers go on with the rest, and it can be stopped."""
    meant, bulks = dead_meant(session, chosen), session.bulks
    bulk = bulks.begin_discard(meant, deed=deed, bulk_id=session.ids.next())
    return bulks.through(bulk, steps_max=_DISCARD_STEPS_MAX)


def working(session: Session, concurrency: int | None) -> EmbeddedWorker:
    """A worker inside this process, for as long as the block lasts."""
    config = load(store=session.url, concurrency=concurrency)
    return EmbeddedWorker(session, config, queues=(), categories=())


def write_server_log() -> None:
    """Write the log to standard error, as the settings say: as a worker does."""
    config = load()
    write_logs(form=config.log_format, level=config.log_level)


def owner_rate(rate: str | None) -> tuple[int, float] | None:
    """How many requests may come at once and every how many seconds one more: ``"50/s"`` is 50, and one every 20 ms."""
    per_s = rate_per_s("rate_per_owner", rate)
    if per_s is None:
        return None
    count = re.match(r"\s*([0-9_.]+)", str(rate))
    burst = per_s if count is None else float(count[1].replace("_", ""))
    return max(1, int(burst)), 1 / per_s
