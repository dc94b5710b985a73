"""The one composition root: where stores, observers, rules and engine are put together."""

from perdure.app.app import App
from perdure.app.job_refs import Called, JobRef
from perdure.app.pipelines import Pipeline
from perdure.app.session.opening import open_store, schema_of, settings_in_force, shown_url
from perdure.app.surface.loading import load_pipeline, load_policy, load_session
from perdure.app.surface.policies import (
    explain_spec,
    falling_otherwise,
    falling_unlisted,
    policy_page,
    policy_pages,
)
from perdure.app.worker.lane_names import check_served, lanes_served
from perdure.app.worker.processes import supervise, work
from perdure.config import check_times, file_path as settings_file, misspelt_variables

__all__ = [
    "App",
    "Called",
    "JobRef",
    "Pipeline",
    "check_served",
    "check_times",
    "settings_file",
    "settings_in_force",
    "explain_spec",
    "falling_otherwise",
    "falling_unlisted",
    "load_pipeline",
    "load_policy",
    "load_session",
    "misspelt_variables",
    "open_store",
    "policy_page",
    "policy_pages",
    "schema_of",
    "lanes_served",
    "shown_url",
    "supervise",
    "work",
]
