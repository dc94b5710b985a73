"""The report jobs as a running system: real PostgreSQL, a real S3 server, a model by script, the API, and a worker."""

import importlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
from examples.reports.faults import Fault, FaultyLine
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.servers.postgres import Server
from tests.servers.s3 import S3Server
from tests.stories.kit import until

from perdure import AttemptView, JobRef
from perdure.app.surface import gate_control, queue_control
from perdure.app.surface.access import create_token
from perdure.model.operations import Deed

ROOT = Path(__file__).parents[3]
SCALE = 0.002  # waits of 60, 240 and 960 ms
TIMEOUT_S = 20.0  # far beyond what a busy machine takes for a call
DEED = Deed("test", "")
TEXT = b"Anna: We ship on Friday. Tom: I will test it."


class Reports:
    """The application's modules, the lines to the model and to S3, and the API as its users speak with it."""

    def __init__(self, front: TestClient, model: FaultyLine, s3: FaultyLine) -> None:
        self.front, self.model, self.s3 = front, model, s3
        self.module = {
            name: importlib.import_module(f"examples.reports.{name}")
            for name in ("app", "files", "follow", "monitoring", "objects", "orphans", "report")
        }
        self.app = self.module["app"].app
        self._tokens: dict[tuple[str, ...], str] = {}

    def __getattr__(self, name: str) -> ModuleType:
        return self.module[name]

    def headers(self, owner: str = "ann", *scopes: str) -> dict[str, str]:
        """Those of a token."""
        asked = (owner, *(scopes or ("submit", "read")))
        if asked not in self._tokens:
            session, told = self.app._session, {"name": owner or "operator", "owner": owner}
            made, _ = create_token(session, **told, scopes=asked[1:], expires=None, deed=DEED)
            self._tokens[asked] = made
        return {"authorization": f"Bearer {self._tokens[asked]}"}

    def get(self, path: str, owner: str = "ann", *scopes: str) -> httpx.Response:
        return self.front.get(path, headers=self.headers(owner, *scopes))

    def send(self, name: str, body: bytes = TEXT, owner: str = "ann") -> httpx.Response:
        headers = self.headers(owner) | {"x-request-id": quote(name)}
        return self.front.post(
            "/api/files/upload", params={"name": name}, content=body, headers=headers
        )

    def upload(self, *faults: Fault, body: bytes = TEXT, name: str | None = None) -> str:
        """Upload a file whose calls of the model meet these faults; its id."""
        name = name or f"{uuid4().hex[:12]}.txt"
        self.model.plan("POST", name, *faults)
        answer = self.send(name, body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def show(self, file_id: str) -> dict[str, Any]:
        answer = self.get(f"/api/files/{file_id}")
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def ended(self, file_id: str) -> dict[str, Any]:
        """The file, once something has become of it."""
        self.job(file_id).wait(wait_s=100.0)
        what = f"file {file_id} goes after its job"
        until(what, lambda: self.row(file_id)["status"] in ("succeeded", "failed"), within_s=30.0)
        return self.show(file_id)

    def row(self, file_id: str) -> dict[str, Any]:
        with self.files.database() as connection:
            found = connection.execute("SELECT * FROM files WHERE id = %s", (file_id,)).fetchone()
        assert found is not None
        return dict(found)

    def job(self, file_id: str) -> JobRef:
        ref: JobRef = self.app.job(self.row(file_id)["job_id"])
        return ref

    def attempts(self, file_id: str) -> list[tuple[str, str, str | None]]:
        """Stage, status and code of each attempt."""
        return [(one.stage, one.status.value, one.code) for one in self.attempt_views(file_id)]

    def attempt_views(self, file_id: str) -> list[AttemptView]:
        return self.job(file_id).attempts()

    def calls(self, file_id: str) -> int:
        """How many requests the model got about a file."""
        name = self.row(file_id)["name"]
        return sum(one.headers.get("x-request-id") == name for one in self.model.requests)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No job is claimed until the end of the block; what runs may end."""
        self.pause()
        with self.resuming():
            yield

    @contextmanager
    def resuming(self) -> Iterator[None]:
        """Whoever pauses the queue in the block, at its end jobs are claimed again."""
        try:
            yield
        finally:
            queue_control.resume(self.app._session.opened, "default", DEED)

    def forget_pace(self) -> None:
        """After a rate limit calls are paced for a while; who knows that it is over holds the gate and releases it."""
        opened, why = self.app._session.opened, {"by_whom": "test", "reason": "the limit is gone"}
        gate_control.hold(opened, "llm", **why, for_text=None)
        gate_control.release(opened, "llm", **why)

    def pause(self) -> None:
        queue_control.pause(self.app._session.opened, "default", DEED)


@pytest.fixture(scope="session")
def parts(
    postgres: Server, template: str, s3: S3Server
) -> Iterator[tuple[Starlette, FaultyLine, FaultyLine]]:
    """The parts of the system, one of each for each process of the tests."""
    database = postgres.create_database(template=template)
    with FaultyLine() as model, FaultyLine(s3.url) as s3_line, pytest.MonkeyPatch.context() as env:
        settings = {
            "database": database,
            "s3_url": s3_line.url,
            "s3_bucket": f"reports-{secrets.token_hex(4)}",
            "s3_key": s3.key,
            "s3_secret": s3.secret,
            "llm_url": f"{model.url}/v1",
            "llm_key": "scripted",
            "llm_model": "scripted",
            "timeout_s": TIMEOUT_S,
            "scale": SCALE,
        }
        for name, value in settings.items():
            env.setenv(f"REPORTS_{name.upper()}", str(value))
        with pytest.MonkeyPatch.context() as quick:
            quick.setenv("PERDURE_POLL_S", "0.05")  # read where the app is made
            importlib.import_module("examples.reports.files").create_tables()
            api = importlib.import_module("examples.reports.api").api
        yield api, model, s3_line
        importlib.import_module("examples.reports.app").app.close()
    postgres.drop_database(database)


@pytest.fixture(scope="module")
def reports(parts) -> Iterator[Reports]:
    """The system without a worker. It follows its jobs on a thread, which the tests of other files must not meet."""
    api, model, s3_line = parts
    with TestClient(api, base_url="http://localhost", raise_server_exceptions=False) as front:
        yield Reports(front, model, s3_line)


@pytest.fixture(scope="module")
def working(reports: Reports) -> Iterator[Reports]:
    """The system with a worker in this process."""
    with reports.app.working(concurrency=8):
        yield reports


@pytest.fixture
def environment() -> dict[str, str]:
    """What processes of the application are started with."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}
