"""What stands behind an endpoint, asked of a store alone: the handler with a principal, without the server around it."""

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import msgspec

from perdure.model.access import AccessScope, Principal
from perdure.model.errors import UnknownName
from perdure.model.filters import JobFilter
from perdure.model.states import State
from perdure.ports import Reader
from perdure.surfaces.http.asgi import ENDPOINTS
from perdure.surfaces.http.endpoints import HttpCall
from perdure.surfaces.http.problems import Refused

_BY_NAME = {one.name: one for one in ENDPOINTS}
_SCOPES = frozenset({AccessScope.READ})
EVERYBODY = Principal("root", "", frozenset({AccessScope.READ_ALL}))


def ask(name: str, owner: str | None, id: str = "", **query: Any) -> Callable[[Reader], Any]:
    """An endpoint's answer to an owner, or to one who sees everybody's, from that reader."""
    endpoint = _BY_NAME[name]
    principal = EVERYBODY if owner is None else Principal("test", owner, _SCOPES)
    asked = msgspec.convert(query, endpoint.query)

    def read(reader: Reader) -> Any:
        session: Any = SimpleNamespace(
            opened=SimpleNamespace(reader=reader),
            catalogue=None,
            laid_pipelines={},
            aliases_of=lambda pipeline: {},
        )
        path = {"id": id or _one_of(reader, owner)} if "{id}" in endpoint.path else {}
        with suppress(UnknownName, Refused):  # it may not be there, and has cost what it costs
            return endpoint.handler(HttpCall(session, principal, "r", path, asked, None, {}))
        return None

    return read


def _one_of(reader: Reader, owner: str | None) -> str:
    return reader.jobs(JobFilter(owner=owner, states=(State.SUCCEEDED,)), limit=1)[0].id


# What is asked over HTTP: Ann has fifty jobs, Big a tenth of all.
ASKED: dict[str, Callable[[Reader], Any]] = {
    f"{name} of {owner or 'everybody'} with {query or 'nothing'}": ask(name, owner, **query)
    for owner in ("ann", "big", "nobody")
    for name, query in (
        ("list_jobs", {}),
        ("list_jobs", {"limit": 500}),
        ("list_jobs", {"state": "failed"}),
        ("list_jobs", {"state": "retrying"}),
        ("list_jobs", {"state": "held"}),
        ("list_jobs", {"label": "none"}),
        ("list_jobs", {"pipeline": "p"}),
        ("list_jobs", {"pipeline": "nowhere"}),
        ("list_jobs", {"key": "k"}),
        ("list_letters", {"limit": 500}),
        ("list_letters", {"fingerprint": "f7"}),
        ("list_letters", {"pipeline": "nowhere"}),
        ("group_letters", {"limit": 500}),
        ("list_runs", {"limit": 500}),
    )
} | {
    f"{name} of {owner or 'everybody'}": ask(name, owner)
    for owner in ("ann", "big", None)
    for name in ("show_job", "show_result")
} | {
    f"{name} of everybody with {query}": ask(name, None, **query)
    for name, query in (
        ("list_jobs", {"limit": 500}),
        ("group_letters", {"limit": 500}),
        ("list_runs", {"limit": 500}),
        ("show_stats", {}),
        ("list_deeds", {}),
        ("list_workers", {}),
        ("list_schedules", {}),
        ("list_bulks", {"limit": 500}),
    )
}  # fmt: skip
