"""A converter to be tried: its gateway and its site on the loopback, a database of its own, users with cookies, workers."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import httpx2
import uvicorn
from examples.converter.api import make_api
from examples.converter.app import Converter, make_converter
from examples.converter.gateway import make_gateway
from examples.converter.samples import make_pdf
from examples.converter.settings import read_settings
from starlette.applications import Starlette

from perdure import JobRef, Settings
from perdure.app.session.metrics import metrics_of
from perdure.app.surface import gate_control
from perdure.demo.crew import descendants
from tests.observers.scraping import Scraped

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
WORKER = ("perdure.surfaces.cli", "worker", "examples.converter.worker:app")
FAR_S = 60.0  # a deadline for what takes a second


def until(what: str, question: Callable[[], T], *, within_s: float = FAR_S) -> T:
    """Ask until the answer is true; fail, naming the question, when the time is over."""
    give_up_at = time.monotonic() + within_s
    while not (answer := question()):
        assert time.monotonic() < give_up_at, f"not within {within_s:g} s: {what}; last {answer!r}"
        time.sleep(0.05)
    return answer


@contextmanager
def served(application: Starlette) -> Iterator[str]:
    """An ASGI application at an address of the loopback."""
    config = uvicorn.Config(application, port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until("the server listens", lambda: server.started or not thread.is_alive())
    assert server.started, "the server ended before it listened"
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(FAR_S)


class User(httpx2.Client):
    """Somebody with a cookie of their own."""

    def send_pdf(self, pdf: bytes, name: str = "a.pdf") -> httpx2.Response:
        return self.post("/api/upload", files={"file": (name, pdf, "application/pdf")})

    def upload(self, pdf: bytes, name: str = "a.pdf") -> str:
        """The id of the job of a file that is accepted."""
        answer = self.send_pdf(pdf, name)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["jobs"][0]["id"])

    def jobs(self, **query: str) -> dict[str, dict[str, Any]]:
        answer = self.get("/api/jobs", params=query)
        assert answer.status_code == 200, answer.text
        return {one["id"]: one for one in answer.json()["jobs"]}

    def status(self, job_id: str) -> str:
        return str(self.jobs()[job_id]["status"])


def error_in(answer: httpx2.Response) -> tuple[int, str]:
    """Status and code of a refusal in its envelope; its message is one line and names no place of ours."""
    told = answer.json()
    assert set(told) == {"error"}
    assert set(told["error"]) == {"code", "message"}
    message = told["error"]["message"]
    assert "\n" not in message
    assert "/" not in message
    assert "Traceback" not in message
    return answer.status_code, told["error"]["code"]


@dataclass
class Trial:
    """One converter, its parts and those who use it."""

    environment: dict[str, str]
    settings: Settings
    site: str
    converter: Converter
    stack: ExitStack

    @property
    def database_url(self) -> str:
        return self.environment["DATABASE_URL"]

    @property
    def gateway(self) -> str:
        return self.environment["GATEWAY_URL"]

    @property
    def uploads(self) -> Path:
        return self.converter.files.uploads

    @property
    def results(self) -> Path:
        return self.converter.files.results

    def user(self) -> User:
        user = self.stack.enter_context(User(base_url=self.site, timeout=FAR_S))
        user.get("/api/jobs")  # gives the cookie
        return user

    def order(self, **faults: Any) -> None:
        """Tell the gateway what to do wrong."""
        assert httpx2.post(f"{self.gateway}/faults", json=faults).status_code == 200

    def traffic(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx2.get(f"{self.gateway}/traffic").json()
        return found

    def job(self, job_id: str) -> JobRef:
        return self.converter.app.job(job_id)

    @contextmanager
    def working(self, **tuning: Any) -> Iterator[None]:
        """A worker in this process."""
        with self.converter.app.working(**{"poll_s": 0.05, "grace_s": 5.0, **tuning}):
            yield


def unset(environment: Mapping[str, str]) -> dict[str, str]:
    """The same without settings of Perdure."""
    return {name: text for name, text in environment.items() if not name.startswith("PERDURE_")}


def settings_in(environment: Mapping[str, str]) -> Settings:
    """What an environment says, as a process that is started in it reads it."""
    with patch.dict(os.environ, {**unset(os.environ), **environment}, clear=True):
        return read_settings()


@contextmanager
def trial(folder: Path, database_url: str, **variables: str) -> Iterator[Trial]:
    """Everything but a worker, with the document's numbers but for these variables."""
    with ExitStack() as stack:
        environment = {
            "DATABASE_URL": database_url,
            "GATEWAY_URL": stack.enter_context(served(make_gateway())),
            "UPLOADS_DIR": str(folder / "uploads"),
            "RESULTS_DIR": str(folder / "results"),
            "GATEWAY_TIMEOUT_MS": "120000",
            **variables,
        }
        settings = settings_in(environment)
        site = stack.enter_context(served(make_api(settings)))
        converter = make_converter(settings)
        stack.callback(converter.close)
        yield Trial(environment, settings, site, converter, stack)


def figures_of(trial: Trial) -> Scraped:
    """What Prometheus reads at the port of a worker."""
    return Scraped(metrics_of(trial.converter.app._session).decode())


def hold(trial: Trial, *, release: bool = False) -> None:
    """Stop what goes to the gateway, or let it go on, as an operator does."""
    deed = gate_control.release if release else gate_control.hold
    more = {} if release else {"for_text": None}
    deed(
        trial.converter.app._session.opened, "gateway", by_whom="test", reason="maintenance", **more
    )


def pdf_of(text: str) -> bytes:
    return make_pdf(text, [text, "and a second line"])


# -- workers as they are started in service --------------------------------------------------


class WorkerProcess:
    """``perdure worker examples.converter.worker:app`` with an environment, in a process group of its own."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", *WORKER, "--log-format", "json"],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pids(self) -> list[int]:
        """The supervisor and the processes that it has started."""
        return [self._popen.pid, *descendants(self._popen.pid)]

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def terminate(self) -> None:
        """Ask it to end, as whoever runs services does."""
        self._popen.terminate()

    def exit_status(self) -> int:
        return self._popen.wait(FAR_S)

    def kill(self) -> None:
        """End it and all of its processes at once, as a machine does that loses its power."""
        if self._popen.poll() is not None:
            return  # its number may be somebody else's by now
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._popen.wait(FAR_S)


@contextmanager
def worker_of(trial: Trial, name: str = "worker", **more: str) -> Iterator[WorkerProcess]:
    """A worker of a trial, gone at the end of the block."""
    log = trial.uploads.parent / f"{name}.log"
    process = WorkerProcess({**unset(os.environ), **trial.environment, **more}, log)
    try:
        yield process
    except BaseException:
        print(log.read_text()[-5_000:])
        raise
    finally:
        process.kill()
