"""What is another's, what is nobody's and what never was: one answer, byte for byte, from every endpoint that names an object."""

from collections.abc import Iterator

from perdure.surfaces.http import jobs
from perdure.surfaces.http.asgi import ENDPOINTS
from perdure.surfaces.http.problems import Refused
from tests.surfaces.http.conftest import problem
from tests.surfaces.http.test_http_cells import WHOSE, World

NAMING = [one for one in ENDPOINTS if "{id}" in one.path]


def told_apart(world: World) -> Iterator[str]:
    """The endpoints whose answers tell Bob that something is there."""
    bob = world._clients["other owner"]
    for one in NAMING:
        answers = [world.send(bob, one, whose, {"x-request-id": "r"}) for whose in WHOSE]
        assert {problem(each) for each in answers} == {"not_found"}, one.name
        seen = {(each.status_code, each.content, tuple(each.headers.items())) for each in answers}
        if len(seen) > 1:
            yield one.name


def test_no_endpoint_tells_what_is_anothers_from_what_never_was(app, client):
    assert len(NAMING) > 15
    assert list(told_apart(World(app, client))) == []
    print(
        f"FIGURE endpoints that answer alike for another's, nobody's and no object: {len(NAMING)}"
    )


def test_one_that_did_would_be_noticed(app, client, monkeypatch):
    """The broken twin: a look without an owner, and a kind word."""
    right = jobs._seen

    def seen(call):
        if call.session.opened.reader.job(call.path["id"], owner=None) is not None:
            raise Refused("not_found", "it is another's")
        return right(call)

    monkeypatch.setattr(jobs, "_seen", seen)
    assert list(told_apart(World(app, client))) == ["show_job", "show_result"]
