"""A session for surfaces, with an app or without one, and what they ask of it."""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from perdure.app.job_filters import job_named, others_with_key
from perdure.app.job_refs import JobRef, job_at
from perdure.app.runs import Run
from perdure.app.session.opening import open_store, settings_in_force
from perdure.app.session.session import Session
from perdure.engine.batch.report import Report
from perdure.engine.batch.results import has_stopped
from perdure.engine.batch.runs import find_run, unfed_at, unfed_words
from perdure.engine.batch.unattended import workers_alive
from perdure.engine.observe import Observers
from perdure.engine.operate.closed_lanes import why_closed
from perdure.engine.operate.eligible import RedrivePreview
from perdure.model.errors import CallerError
from perdure.stores import urls
from perdure.stores.audit_checks import CHECKS
from perdure.stores.sqlite.reader import AUDIT

__all__ = [
    "RedrivePreview",
    "Report",
    "checks_of",
    "has_stopped",
    "job_of",
    "run_at",
    "session_at",
    "tables_of",
    "unfed_at",
    "unfed_words",
    "workers_alive",
    "why_closed",
]


@contextmanager
def session_at(
    store: str | None, app: str | None = None, *, create: bool = False
) -> Iterator[Session]:
    """A store that is there or is to be made, with the pipelines of an app if one is named; then it is the app's own."""
    if app is None:
        url = settings_in_force(store=store).store
        with closing(Session(url, Observers(), open_store(url, create=create))) as session:
            yield session
        return
    from perdure.app.surface.loading import load_session  # a look at a store needs no App

    found = load_session(app)
    if store is not None and urls.settled_url(store) != found.url:
        raise CallerError(
            f"--app {app} has its jobs in {urls.shown_url(found.url)}, and --store says "
            f"{urls.shown_url(store)}; leave one of them out"
        )
    with closing(found):
        open_store(found.url, create=False).close()  # refuses one that is not there
        yield found


def run_at(session: Session, named: str) -> Run:
    """A run by its id, its number or its name."""
    return Run(session, find_run(session.opened.reader, named))


def job_of(session: Session, job_id: str, *, owner: str | None = None) -> JobRef:
    """One job, by id or number, or by a key that only one has, to be cancelled, run now or retried.

    A number that is another job's key is refused: a deed on the wrong job is worse than a question.
    """
    reader = session.opened.reader
    job = job_named(reader, job_id) if owner is None else job_at(reader, job_id, owner)
    if others := others_with_key(reader, job_id, job, owner=owner or ""):
        raise CallerError(
            f"{job_id} is the number of job {job.id} and the key of job {', '.join(others)}; name the one that is meant by its id"
        )
    return JobRef(job.id, False, session, owner)


def checks_of(url: str) -> tuple[str, ...]:
    """The checks that an audit of a store makes, by name."""
    return tuple(sorted(_statements(url)))


def tables_of(url: str) -> tuple[str, ...]:
    """The tables that those checks read."""
    found = re.findall(r"\bperdure_(\w+)", "\n".join(_statements(url).values()))
    return tuple(sorted(set(found)))


def _statements(url: str) -> Mapping[str, str]:
    return CHECKS if url.startswith(urls.POSTGRES) else AUDIT
