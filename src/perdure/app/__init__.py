"""The one composition root: where stores, observers, rules and engine are put together.

A name is loaded when it is first used, and not before: a keeper, a supervisor and a command that only looks need no App.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
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
    from perdure.app.worker.processes import work
    from perdure.app.worker.supervision import supervise
    from perdure.config import check_times, misspelt_variables, settings_file
    from perdure.observers.event_lines import JsonFormatter
else:

    def __getattr__(name: str) -> object:
        """A name of ours, from where it lives."""
        if name not in _HOMES:
            raise AttributeError(f"module 'perdure.app' has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


__all__ = [
    "App",
    "Called",
    "JobRef",
    "JsonFormatter",
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

# Where each name lives, as the imports above have it for type checkers; a test compares the two.
_NAMES = {
    "perdure.app.app": "App",
    "perdure.app.job_refs": "Called JobRef",
    "perdure.app.pipelines": "Pipeline",
    "perdure.app.session.opening": "open_store schema_of settings_in_force shown_url",
    "perdure.app.surface.loading": "load_pipeline load_policy load_session",
    "perdure.app.surface.policies": (
        "explain_spec falling_otherwise falling_unlisted policy_page policy_pages"
    ),
    "perdure.app.worker.lane_names": "check_served lanes_served",
    "perdure.app.worker.processes": "work",
    "perdure.app.worker.supervision": "supervise",
    "perdure.config": "check_times misspelt_variables settings_file",
    "perdure.observers.event_lines": "JsonFormatter",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
