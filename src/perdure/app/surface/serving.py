"""What a server does for those outside: items to a pipeline by its name, and a worker beside it."""

from perdure.app.pipelines import Pipeline
from perdure.app.session.session import Session
from perdure.app.worker.embedded import EmbeddedWorker
from perdure.config import load
from perdure.engine.enqueue import Item
from perdure.engine.operate.feed_listeners import Listener
from perdure.model.errors import UnknownName

__all__ = ["Item", "Listener", "pipeline_named", "working"]


def pipeline_named(session: Session, name: str) -> Pipeline:
    """A pipeline that the app declares."""
    laid = session.laid_pipelines.get(name)
    if laid is None:
        raise UnknownName(f"no pipeline {name!r} here")
    return Pipeline(session, laid)


def working(session: Session, concurrency: int | None) -> EmbeddedWorker:
    """A worker inside this process, for as long as the block lasts."""
    config = load(store=session.url, concurrency=concurrency)
    return EmbeddedWorker(session, config, queues=(), categories=())
