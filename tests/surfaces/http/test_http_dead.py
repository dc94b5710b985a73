"""Dead letters over HTTP: an owner's own, and nobody else's."""

import pytest

from perdure.app.surface.serving import pipeline_named
from tests.engine.kit import until
from tests.surfaces.http.conftest import problem

EVERYTHING = ("submit", "read", "operate")


@pytest.fixture
def letters(app):
    """Two dead letters of Ann's, one of Bob's and one of nobody's."""
    pipe = pipeline_named(app._session, "shouting")
    jobs = [pipe.enqueue({"broken": True}, owner=who) for who in ("ann", "ann", "bob", "")]
    with app.working(concurrency=2):
        for one in jobs:
            one.wait()
    return [one.id for one in jobs]


def test_an_owner_sees_its_own_dead_letters_and_an_operator_all(client, letters):
    ann, admin = client(*EVERYTHING), client("admin", owner="")
    assert [one["id"] for one in ann.get("/api/dead").json()["jobs"]] == [letters[1], letters[0]]
    assert len(admin.get("/api/dead").json()["jobs"]) == 4
    (group,) = ann.get("/api/dead/groups").json()["groups"]
    assert (group["count"], group["pipeline"]) == (2, "shouting")
    assert "secret" not in str(group)
    assert problem(ann.get("/api/dead?owner=bob")) == "forbidden"
    assert [one["id"] for one in admin.get("/api/dead?owner=bob").json()["jobs"]] == [letters[2]]


def test_an_owner_drives_its_own_again_and_nobody_elses(app, client, letters):
    ann, bob = client(*EVERYTHING), client(*EVERYTHING, owner="bob")
    before = ann.post("/api/dead/preview", json={"pipeline": "shouting"}).json()
    assert (before["count"], before["eligible"], before["capped"]) == (2, 2, False)
    begun = ann.post("/api/dead/redrive", json={"pipeline": "shouting", "reason": "mended"})
    assert begun.status_code == 202
    where = begun.headers["location"]
    assert problem(bob.get(where)) == problem(bob.post(f"{where}/stop", json={})) == "not_found"
    with app.working(concurrency=2):
        until(lambda: ann.get(where).json()["status"] == "done", "all are taken on")
    assert ann.get(where).json()["done"] == 2
    lives = {id: app.job(id).view().life for id in letters}
    assert list(lives.values()) == [2, 2, 1, 1]


def test_an_owner_discards_its_own_and_nobody_elses(app, client, letters):
    ann = client(*EVERYTHING)
    done = ann.post("/api/dead/discard", json={"reason": "seen"}).json()
    assert (done["status"], done["done"]) == ("done", 2)
    assert [app.job(id).view().discarded_at is not None for id in letters] == [
        True,
        True,
        False,
        False,
    ]
    assert ann.get("/api/dead").json()["jobs"] == []


def test_who_only_reads_changes_nothing(client, letters):
    reader = client("read")
    for path in ("preview", "redrive", "discard"):
        assert problem(reader.post(f"/api/dead/{path}", json={})) == "forbidden"
