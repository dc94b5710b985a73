"""The demo's work: invoices are fetched, read by a model, and stored.

Three stages of the usual kind: two sync ones on threads, an async one for the slow call. There is
no ``try`` in them. What their exceptions mean, what is tried again and when, says the policy.
"""

import os
from typing import Any

from perdure import App, Backoff, GateSettings, Jitter, PaceSettings, Pipeline, Policy, Rule
from perdure.demo.client import post, post_async
from perdure.demo.upstream import POISON
from perdure.model.kinds import Kind

UPSTREAM = "PERDURE_DEMO_UPSTREAM"
PIPELINE = "invoices"
ARCHIVE = "archive"
CRASH_STATUS = 3
STAGE_S = 1.2
# Shorter than the stage's own time, so that the thread of a hung call is free again soon.
CALL_S = 1.0

# As the preset ``standard``, but for people who watch: short waits, and more tries than faults.
ACTIONS: dict[str, Any] = {
    "rate_limited": "wait",
    "upstream_unavailable": "retry",
    "upstream_error": "retry",
    "network": "retry",
    "timeout": "retry",
    "ambiguous": "retry",
    "invalid_output": "retry",
    "unknown": "retry",
}
HURRIED = Policy(
    name="hurried",
    attempts_max=8,
    crashes_max=3,
    backoff=Backoff(base_s=0.2, factor=2.0, cap_s=2.0),
    jitter=Jitter(ratio=0.25),
    rules={Kind(kind): Rule(action) for kind, action in ACTIONS.items()},
)


def declare(url: str | None = None) -> tuple[App, Pipeline]:
    """The demo's app and its pipeline."""
    app = App(url)
    stage = app.stage(policy=HURRIED, timeout_s=STAGE_S)
    # Only the archive has a gate. The others answer 429 item by item, as scripted: one would hold all.
    app.upstream(ARCHIVE, gate=GateSettings(pace=PaceSettings(start_calls=64)))
    from_archive = app.stage(policy=HURRIED, timeout_s=STAGE_S, upstream=ARCHIVE)
    return app, app.pipeline(PIPELINE, from_archive(fetch), stage(extract), stage(store))


def fetch(item: dict[str, Any]) -> dict[str, Any]:
    """Get the document."""
    found = post(_address("fetch", item), {}, timeout_s=CALL_S)
    return {"invoice": item["invoice"], "text": found["text"]}


async def extract(document: dict[str, Any]) -> dict[str, Any]:
    """Ask the model for what is in it; its JSON may be anything but."""
    if document["text"] == POISON:
        os._exit(CRASH_STATUS)  # as a parser in C would that runs into a damaged file
    found = await post_async(_address("extract", document), {"text": document["text"]})
    return {"invoice": document["invoice"], "supplier": found["supplier"], "total": found["total"]}


def store(facts: dict[str, Any]) -> dict[str, Any]:
    """Write the row."""
    stored = post(_address("store", facts), facts, timeout_s=CALL_S)
    return {**facts, "row": stored["row"]}


def _address(stage: str, item: dict[str, Any]) -> str:
    return f"{os.environ[UPSTREAM]}/{stage}/{item['invoice']}"
