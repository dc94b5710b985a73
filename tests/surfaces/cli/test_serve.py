"""perdure serve: where it listens, and how it ends."""

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

import perdure
from perdure.app.surface.access import create_token, revoke_token
from perdure.model.operations import Deed

WORK = """
from perdure import App

app = App()


@app.stage
def shout(item):
    return item.upper()


shouting = app.pipeline("shouting", shout)
"""


@pytest.fixture
def serve(tmp_path):
    (tmp_path / "work.py").write_text(WORK)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PERDURE")}
    command = [sys.executable, "-m", "perdure.surfaces.cli", "serve", "work:app"]

    def start(*options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, *options],
            cwd=tmp_path,
            env=kept,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.mark.story
def test_a_free_port_is_told_and_a_signal_ends_it_with_its_worker(serve):
    with serve("--worker", "--port", "0") as serving:
        try:
            told = serving.stdout.readline()
            at = told.split()[3].removesuffix(";")
            with urllib.request.urlopen(at.removesuffix("/api") + "/healthz", timeout=30) as seen:
                assert seen.status == 200
            serving.send_signal(signal.SIGTERM)
            assert serving.wait(30) == 0
        finally:
            serving.kill()
        lines = [json.loads(line) for line in serving.stderr.read().splitlines()]
    events = [line["event"] for line in lines]
    assert "worker_started" in events
    assert "worker_lost" not in events


def test_a_port_that_is_taken_is_told_in_one_line(serve):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        _, told = serve("--port", port).communicate(timeout=60)
    assert told == (
        f"perdure: cannot listen at --host 127.0.0.1 --port {port}: Address already in use; "
        "give another, or --port 0 for a free one\n"
    )


@pytest.mark.story
def test_beyond_loopback_it_listens_only_with_a_token_that_is_good(serve, tmp_path):
    beyond = (
        "--host",
        "127.0.0.2",
        "--port",
        "0",
    )  # not one that it knows to be this machine alone

    def refused() -> str:
        _, told = serve(*beyond).communicate(timeout=60)
        return told

    nothing = refused()
    assert nothing.startswith(
        "perdure: --host 127.0.0.2 is reached from other machines, and this store has no token"
    )
    assert "perdure token create --name" in nothing
    app = perdure.App(f"sqlite:///{tmp_path}/perdure.db")
    given = {
        "name": "web",
        "owner": "ann",
        "scopes": ["read"],
        "expires": None,
        "deed": Deed("t", ""),
    }
    _, kept = create_token(app._session, **given)
    revoke_token(app._session, kept.id, Deed("t", ""))
    assert refused() == nothing
    create_token(app._session, **given)
    app.close()
    with serve(*beyond) as serving:
        try:
            assert "http://127.0.0.2:" in serving.stdout.readline()
        finally:
            serving.kill()


def test_without_its_extra_the_python_side_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "perdure.http", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'perdure\[http\]'"):
        importlib.import_module("perdure.http")
