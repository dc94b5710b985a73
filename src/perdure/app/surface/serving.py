"""What a server does for those outside: items to a pipeline by its name, a worker beside it, and words for its log."""

from traceback import walk_tb

from perdure.app.pipelines import Pipeline
from perdure.app.session.session import Session
from perdure.app.worker.embedded import EmbeddedWorker
from perdure.config import load
from perdure.engine.enqueue import Item
from perdure.engine.operate.feed_listeners import Listener
from perdure.model.errors import UnknownName
from perdure.rules.redact import safe_line

__all__ = ["Item", "Listener", "pipeline_named", "trace_of", "working"]


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


def trace_of(error: BaseException) -> str:
    """What was raised, and where, innermost first, on one line for a log: the words without secrets, no values."""
    frames = [
        f"{frame.f_globals.get('__name__', '?')}:{line}"
        for frame, line in walk_tb(error.__traceback__)
    ]
    told = f"{type(error).__qualname__}: {safe_line(str(error))} at {' < '.join(reversed(frames))}"
    before = error.__cause__ or error.__context__
    return told if before is None else f"{told}; after {trace_of(before)}"
