"""Other names for fields: what may have one, and the one function that gives it; the API, the log and exports call it.

An alias stands beside the name, never in its place: whoever knows our names finds them everywhere, and what the documents
of the API and the log say of them stays true.
"""

from collections.abc import Mapping
from typing import Any

from perdure.model.events import FIELDS

# Of jobs and attempts as the API and `--json` show them, and of results; a test holds it to them.
SHOWN_FIELDS = frozenset({
    "attempts", "attempts_max", "cost_usd", "created_at", "deadline_at", "decision", "detail", "duration_s", "ended_at", "error",
    "error_code", "error_detail", "error_kind", "failures", "finished_at", "id", "job_id", "key", "label",
    "last_attempt_at", "life", "next_run_at", "number", "ok", "owner", "pipeline", "priority", "request_id", "result",
    "retries_manual", "retry_after_ms", "stage", "started_at", "state", "status", "token", "tokens_in", "tokens_out",
    "updated_at", "value", "view",
})  # fmt: skip
FIELD_NAMES = frozenset(FIELDS) | SHOWN_FIELDS


def under_aliases(fields: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """The fields, and those that have an alias under that, too; a field that is there keeps its own name."""
    told = dict(fields)
    for name, alias in aliases.items():
        if name in fields:
            told.setdefault(alias, fields[name])
    return told
