"""The one composition root: where stores, observers, rules and engine are put together."""

from perdure.app.app import App
from perdure.app.job_refs import Called, JobRef
from perdure.app.pipelines import Pipeline
from perdure.app.session.opening import configured, open_store, schema_of, shown_url
from perdure.app.surface.loading import load_pipeline, load_policy, load_session
from perdure.app.surface.policies import (
    explained,
    falling_otherwise,
    falling_unlisted,
    policy_page,
    policy_pages,
)
from perdure.app.worker.lane_names import check_served, served
from perdure.app.worker.processes import supervise, work
from perdure.config import check_times

__all__ = [
    "App",
    "Called",
    "JobRef",
    "Pipeline",
    "check_served",
    "check_times",
    "configured",
    "explained",
    "falling_otherwise",
    "falling_unlisted",
    "load_pipeline",
    "load_policy",
    "load_session",
    "open_store",
    "policy_page",
    "policy_pages",
    "schema_of",
    "served",
    "shown_url",
    "supervise",
    "work",
]
