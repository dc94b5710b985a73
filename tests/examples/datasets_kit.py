"""The sample pipeline as a running system: SQLite, a provider by script, a worker in this process, the API."""

import importlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from examples.datasets.provider import Fault, Provider
from starlette.testclient import TestClient

from perdure import Run
from perdure.app.surface.access import create_token
from perdure.model.operations import Deed

KEY = "key-1"
SCALE = 0.2  # waits of 200 and 400 ms: longer than a gate takes to see that everything fails
NAMES = ("settings", "app", "build", "sinks", "report", "api")


class Trial:
    """The application's modules and its provider; data sets are built of lists."""

    def __init__(self, folder: Path, provider: Provider) -> None:
        self.folder, self.provider = folder, provider
        modules = {name: importlib.import_module(f"examples.datasets.{name}") for name in NAMES}
        self.modules: dict[str, ModuleType] = modules
        self.app, self.samples = modules["app"].app, modules["app"].samples

    def __getattr__(self, name: str) -> ModuleType:
        return self.modules[name]

    def source(self, name: str, lines: Sequence[Any]) -> Path:
        """A file with a line for each of these; a text is a line as it is."""
        path = self.folder / f"{name}.source"
        texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
        path.write_text("".join(f"{one}\n" for one in texts))
        return path

    def feed(self, name: str, lines: Sequence[Any], **options: Any) -> Run:
        """A run of these lines, fed."""
        items = self.build.items_of(name, self.source(name, lines))
        return self.samples.run(items, name=name, **options)

    def plan(self, name: str, id: str, *faults: Fault) -> None:
        self.provider.plan(f"{name}/{id}", *faults)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of the JSON lines of a data set."""
        path = self.folder / "datasets" / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def tries(self, run: Run, key: str) -> list[tuple[str, int, str]]:
        """Stage, number and status of each attempt at a sample."""
        (job,) = self.app.jobs.list(run=run.no, key=key)
        return [
            (one.stage, one.number, one.status.value) for one in self.app.job(job.id).attempts()
        ]

    def headers(self, owner: str, *scopes: str, tenant: str | None = None) -> dict[str, str]:
        """Those of a request with a new token."""
        asked = {"name": owner, "owner": owner, "scopes": scopes or ("submit", "read", "operate")}
        session, deed = self.app._session, Deed("test", "")
        token, _ = create_token(session, **asked, expires=None, deed=deed)
        return {"authorization": f"Bearer {token}", "x-tenant-id": tenant or owner}

    @contextmanager
    def front(self) -> Iterator[TestClient]:
        """The API, in this process."""
        with TestClient(
            self.modules["api"].api, base_url="http://localhost", raise_server_exceptions=False
        ) as client:
            yield client


@contextmanager
def trial(folder: Path) -> Iterator[Trial]:
    """The system in a folder; its modules read the environment when they are first imported, so there is one for each process."""
    with Provider(KEY) as provider, pytest.MonkeyPatch.context() as env:
        told = {
            "store": f"sqlite:///{folder}/store.db",
            "folder": folder,
            "llm_url": provider.url,
            "llm_key": KEY,
            "llm_model": "scripted",
            "timeout_s": 5,
            "scale": SCALE,
        }
        for name, value in told.items():
            env.setenv(f"DATASETS_{name.upper()}", str(value))
        env.delenv("PERDURE_STORE", raising=False)  # which would beat the example's own name
        with pytest.MonkeyPatch.context() as quick:
            quick.setenv("PERDURE_POLL_S", "0.05")  # read where the app is made
            found = Trial(folder, provider)
        yield found
        found.app.close()
        found.modules["app"].client().close()
