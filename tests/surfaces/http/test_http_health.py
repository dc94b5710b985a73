"""Whether a server can serve: its store, the schema there, and the worker beside it."""

import threading

import pytest

from perdure.surfaces.http import health
from tests.engine.kit import until
from tests.surfaces.http.conftest import on_both_stores


@pytest.fixture(autouse=True)
def looks_each_time(monkeypatch):
    monkeypatch.setattr(health, "LOOK_S", 0.0)


def ready(client) -> tuple[int, str]:
    answer = client().get("/readyz")
    assert answer.json()["ok"] is (answer.status_code == 200)
    return answer.status_code, answer.json()["why"]


@on_both_stores
def test_a_schema_of_another_version_is_not_ready_and_the_process_lives(app, client):
    assert ready(client) == (200, "")
    control = app._session.opened.control
    control._execute("UPDATE perdure_migrations SET checksum = 'x' || checksum", {})
    assert ready(client) == (503, "schema_mismatch")
    assert client().get("/healthz").json() == {"ok": True, "why": ""}
    control._execute("UPDATE perdure_migrations SET checksum = substr(checksum, 2)", {})
    assert ready(client) == (200, "")


def test_a_worker_in_this_process_has_to_claim(app, client, monkeypatch):
    """The broken turn is the store's, which fails for the worker alone."""
    stuck = threading.Event()
    with app.working(concurrency=1, lease_ttl_s=0.3, poll_s=0.1) as worker:
        until(lambda: ready(client) == (200, ""), "it claims")
        pump = worker._life.worker._pump

        def fail(**how):
            stuck.set()
            raise RuntimeError("a turn that fails")

        with monkeypatch.context() as patch:
            patch.setattr(pump, "once", fail)
            assert stuck.wait(30)
            until(lambda: ready(client) == (503, "worker_silent"), "it is silent for a lease")
        until(lambda: ready(client) == (200, ""), "it claims again")
        patch_lost(monkeypatch, worker)
        assert ready(client) == (503, "slots_lost")
    assert ready(client) == (200, ""), "a server whose worker was told to stop serves on"


def patch_lost(monkeypatch, worker) -> None:
    runner = type(worker._life.worker._runner)
    monkeypatch.setattr(runner, "slots_unusable", property(lambda self: 1))


def test_however_often_it_is_asked_the_store_is_looked_at_once_a_second(app, client, monkeypatch):
    monkeypatch.setattr(health, "LOOK_S", 3_600.0)
    looks = []
    monkeypatch.setattr(health, "why_not_ready", lambda session: looks.append(1) or "")
    assert [client().get("/readyz").status_code for _ in range(5)] == [200] * 5
    assert len(looks) <= 1
