"""What an app says of a job beyond what is stored: when it fails, and the second names of its fields."""

from collections.abc import Mapping

from msgspec import Struct

from perdure.app.session.session import Session
from perdure.model.views import JobView
from perdure.rules.policy import Scope


class JobTerms(Struct, frozen=True):
    """At ``attempts_max`` counted failures a job fails: at its stage, or, if ``in_all``, at all of its stages together."""

    attempts_max: int | None = None
    in_all: bool = False
    aliases: Mapping[str, str] = {}


def job_terms(session: Session, job: JobView) -> JobTerms:
    """What the app says of a job; without the app that has its stage, only the second names of the settings."""
    laid, aliases = session.laid_pipelines.get(job.pipeline), session.aliases_of(job.pipeline)
    stage = None if laid is None else laid.stage(job.stage)
    if stage is None:
        return JobTerms(aliases=aliases)
    return JobTerms(stage.policy.attempts_max, stage.policy.scope is Scope.JOB, aliases)
