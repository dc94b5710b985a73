"""An id of another's object and one that never was: the same single statement with the same plan, whichever endpoint is asked.

So the time to an answer tells nothing either. The statement has the owner among its conditions: nothing is read and then kept back.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from perdure.model.filters import JobFilter
from perdure.model.states import State
from perdure.ports import Reader
from perdure.surfaces.http.asgi import ENDPOINTS
from tests.stores.crowd import Crowd, PostgresCrowd, SqliteCrowd
from tests.surfaces.http.behind import ask

BIGS, UNKNOWN = (f"00000000-0000-7000-8000-00000000000{n}" for n in (8, 9))
_RUN = f"""
INSERT INTO perdure_runs (id, owner, pipeline, name, status, settings, created_at, changed_at)
VALUES ('{BIGS}', 'big', 'p', 'nightly', 'running', '{{}}', 1, 1)
"""
_BULK = f"""
INSERT INTO perdure_bulks (id, verb, status, owner, filter, begun_by, reason, begun_at, changed_at)
VALUES ('{BIGS}', 'discard', 'running', 'big', '{{}}', 'big', '', 1, 1)
"""
_WHOSE = re.compile(r"owner\s*=")


@pytest.fixture(params=["sqlite", "postgres"])
def crowd(request) -> Iterator[Crowd]:
    """A thousand jobs, of which a tenth are Big's, and a run and a bulk operation of Big's."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            made: Crowd = stack.enter_context(closing(SqliteCrowd(1_000)))
        else:
            postgres = request.getfixturevalue("postgres")
            url = postgres.create_database(template=request.getfixturevalue("template"))
            stack.callback(postgres.drop_database, url)
            made = stack.enter_context(closing(PostgresCrowd(1_000, url)))
        made.run(_RUN)
        made.run(_BULK)
        yield made


def plans(crowd: Crowd, read: Callable[[Reader], object], id: str) -> list[tuple[str, str]]:
    """Each statement and its plan, with no word of which id it was."""
    found = crowd.plans(read)
    return [(text.replace(id, "?"), plan.replace(id, "?")) for text, plan in found]


def test_no_statement_and_no_plan_tells_another_ones_object_from_none(crowd):
    ended = JobFilter(owner="big", states=(State.SUCCEEDED,))
    job = crowd.reader.jobs(ended, limit=1)[0].id
    assert crowd.reader.run(BIGS, owner="big") is not None
    assert crowd.reader.bulks(id=BIGS, owner="big") != []
    asked = [one for one in ENDPOINTS if "{id}" in one.path]
    for one in asked:
        big = job if one.path.startswith("/api/jobs") else BIGS
        strange, never = (plans(crowd, ask(one.name, "ann", id), id) for id in (big, UNKNOWN))
        assert strange == never, one.name
        ((text, _),) = never
        assert _WHOSE.search(text.rpartition("WHERE")[2]), f"{one.name}: {text}"
    for name in ("show_job", "show_result", "list_captures"):  # one's own takes it first
        strange, own = (plans(crowd, ask(name, who, job), job) for who in ("ann", "big"))
        first, same = (
            own[0][0].replace("'big'", "'ann'"),
            strange[0][0],
        )  # SQLite tells what it was given
        assert first == same, name
    print(f"FIGURE endpoints whose statement and plan are the same for unknown ids: {len(asked)}")
