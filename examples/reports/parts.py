"""Start everything that the application needs on a bare machine, each a real one, and its own two processes.

The servers live in short-lived folders, and end with us, also when we are killed (tests/servers).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

from examples.reports.faults import FaultyLine
from examples.reports.report import request_of
from tests.servers.folder import ProgramFailed
from tests.servers.model import ModelServer
from tests.servers.postgres import Server as PostgresServer
from tests.servers.programs import MissingPart
from tests.servers.s3 import S3Server

from perdure.demo import die_with_parent

__all__ = ["MissingPart", "NotStarted", "ProgramFailed", "System", "running"]

ROOT = Path(__file__).resolve().parents[2]
PERDURE = (sys.executable, "-m", "perdure.surfaces.cli")
TIMEOUT_S = 180.0  # the document's
START_S_MAX = 180.0
END_S_MAX = 40.0


class NotStarted(Exception):
    """A process of the application did not begin; the message holds what it said."""


@dataclass
class System:
    """The running application, and what stands behind it."""

    postgres: PostgresServer
    folder: Path
    environment: Mapping[str, str]
    model_line: FaultyLine
    s3_line: FaultyLine
    url: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *command: str) -> None:
        """One process of the application; it may not outlive us."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, die_with_parent.__file__, str(os.getpid()), *command],
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, name: str) -> None:
        """End a process as a machine that shuts down does."""
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill_working_process(self) -> None:
        """Kill the process that works, as the kernel does when memory runs out. Its supervisor starts another."""
        supervisor = self.processes["worker"].pid
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        for pid in children:
            if b"worker-child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
                return
        raise ProcessLookupError("no process of the worker works")

    def perdure(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of Perdure about the application's store."""
        environment = {**self.environment, "PERDURE_STORE": self.environment["REPORTS_DATABASE"]}
        return subprocess.run(
            [*PERDURE, *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, module: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A program of the application."""
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            check=False,
        )

    def token(self, name: str, *scopes: str, owner: str = "") -> str:
        """A new access token, as an operator makes it."""
        options = [word for scope in scopes for word in ("--scope", scope)]
        options += ["--owner", owner] if owner else []
        made = self.perdure("token", "create", "--name", name, *options)
        if made.returncode:
            raise NotStarted(f"no token could be made: {made.stderr.strip()}")
        return made.stdout.strip()


def measured_timeout_s(model: ModelServer) -> float:
    """A timeout that no honest call meets on this machine, however busy it is, and that a demonstration can wait for."""
    begun = time.monotonic()
    body = {"model": "smollm2", **request_of("report-2", "Ann: Is it ready? Tom: It is.")}
    said = {"Authorization": f"Bearer {model.key}", "Content-Type": "application/json"}
    asked = Request(f"{model.url}/chat/completions", json.dumps(body).encode(), said)
    with urlopen(asked, timeout=600.0) as answer:
        answer.read()
    return min(TIMEOUT_S, max(30.0, 12 * (time.monotonic() - begun)))


@contextmanager
def running(*, scale: float, in_haste: bool, concurrency: int = 3) -> Iterator[System]:
    """The whole system, for as long as the block lasts; ``in_haste`` with a timeout that a demonstration can wait for."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="perdure-reports-")))
        postgres = stack.enter_context(PostgresServer(in_memory=True))
        s3 = stack.enter_context(S3Server())
        model = stack.enter_context(ModelServer())
        model_line = stack.enter_context(FaultyLine(model.url))
        s3_line = stack.enter_context(FaultyLine(s3.url))
        settings = {
            "database": postgres.create_database("reports"),
            "s3_url": s3_line.url,
            "s3_bucket": "reports",
            "s3_key": s3.key,
            "s3_secret": s3.secret,
            "llm_url": f"{model_line.url}/v1",
            "llm_key": model.key,
            "llm_model": "smollm2",
            "timeout_s": measured_timeout_s(model) if in_haste else TIMEOUT_S,
            "scale": scale,
        }
        environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("PERDURE_")},
            **{f"REPORTS_{name.upper()}": str(value) for name, value in settings.items()},
            "PYTHONPATH": str(ROOT),
        }
        system = System(postgres, folder, environment, model_line, s3_line)
        stack.callback(lambda: [system.stop(name) for name in list(system.processes)])
        made = system.run("examples.reports.files")
        if made.returncode:
            raise NotStarted(f"the tables could not be made: {made.stderr[-2000:]}")
        system.url = start_api(system)
        work = ("worker", "examples.reports.app:app", "--concurrency", str(concurrency))
        system.start("worker", *PERDURE, *work, "--log-format", "json")
        yield system


def start_api(system: System) -> str:
    """Start the API on a free port, and wait until it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = ("--host", "127.0.0.1", "--port", str(port), "--log-level", "warning")
    system.start("api", sys.executable, "-m", "uvicorn", "examples.reports.api:api", *where)
    give_up_at = time.monotonic() + START_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            if system.processes["api"].poll() is not None or time.monotonic() > give_up_at:
                said = (system.folder / "api.log").read_text()[-2000:]
                raise NotStarted(f"the API does not answer; its last words:\n{said}") from None
            time.sleep(0.05)
        else:
            return f"http://127.0.0.1:{port}"
