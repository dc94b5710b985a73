"""What the stories are played with: real workers, real signals, a real store, and a way to look on.

Every process carries a mark in its environment, so that whatever a story leaves behind, orphans
of a killed supervisor included, is found by that mark and ended by its id.
"""

import importlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from perdure import App
from perdure.engine.clock import SystemClock
from perdure.stores.opening import open_store
from tests.stories.ledger import Ledger
from tests.stories.looking import Looking, Row, looking_at

T = TypeVar("T")

CLI = (sys.executable, "-m", "perdure.surfaces.cli")
APP = Path(__file__).parent / "app"
_MARK = "PERDURE_STORY_MARK"
_POLL_S = 0.02
_LOG_LINES_SHOWN = 150

on_both = pytest.mark.parametrize("story", ["sqlite", "postgres"], indirect=True)
# Where another story shows much the same on PostgreSQL, this one is left to the long tests there.
on_both_long = pytest.mark.parametrize(
    "story", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)


def until(what: str, question: Callable[[], T], *, within_s: float) -> T:
    """Ask until the answer is true; fail, naming the question, when the time is over."""
    give_up_at = time.monotonic() + within_s
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > give_up_at:
            raise AssertionError(f"not within {within_s:g} s: {what}; last answer {answer!r}")
        time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as /proc shows it."""

    pid: int
    parent: int
    state: str
    command: tuple[str, ...]

    def option(self, name: str) -> str:
        """The word after ``--name``."""
        return self.command[self.command.index(f"--{name}") + 1]

    @property
    def role(self) -> str:
        return self.option("role")

    @property
    def worker(self) -> int:
        return int(self.option("worker"))


def process(pid: int) -> Seen | None:
    """The process of that id, unless it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return None if state in "ZX" else Seen(pid, int(parent), state, tuple(command))


def children_of(pid: int) -> list[Seen]:
    """The processes that it has started and that run, as the kernel lists them for each of its threads."""
    children: list[str] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            children += task.read_text().split()
    return [seen for child in children if (seen := process(int(child))) is not None]


def processes() -> list[Seen]:
    """Everything that runs."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [seen for pid in pids if (seen := process(pid)) is not None]


class WorkerProcess:
    """One ``perdure worker``: a supervisor, and the children that it has at the moment."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.popen = popen
        self.log = log

    @property
    def pid(self) -> int:
        return self.popen.pid

    def children(self, role: str | None = None) -> list[Seen]:
        """Working processes of this supervisor. They are asked for often: /proc as a whole is not looked through."""
        found = [one for one in children_of(self.pid) if "worker-child" in one.command]
        return [one for one in found if role is None or one.role == role]

    def child(self, role: str = "main", *, within_s: float = 30.0) -> Seen:
        """The child of that role, as soon as there is one."""
        what = f"worker {self.name} has a child for {role}"
        return until(what, lambda: self.children(role), within_s=within_s)[0]

    def open_files(self) -> int:
        """How many files the supervisor has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def kill(self, number: signal.Signals) -> None:
        """Signal the supervisor alone."""
        self.popen.send_signal(number)

    def exit_status(self, *, within_s: float) -> int:
        """The supervisor's exit status, once it has ended by itself."""
        until(f"worker {self.name} ends", lambda: self.popen.poll() is not None, within_s=within_s)
        return self.popen.returncode


class Story:
    """A folder with an app, a store and a ledger, and the processes that share them."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self.file = folder / "story.db"
        self.url = url or f"sqlite:///{self.file}"
        self.mark = secrets.token_hex(8)
        self.settings: dict[str, str] = {}  # environment of every process
        self.workers: list[WorkerProcess] = []
        self._looking: Looking | None = None
        shutil.copytree(APP, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__*"))

    # -- processes -----------------------------------------------------------------------

    def environment(self, **more: str) -> dict[str, str]:
        """Ours without settings of Perdure, plus the store and the mark."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PERDURE_")}
        return {**kept, "PERDURE_STORE": self.url, _MARK: self.mark, **self.settings, **more}

    def worker(
        self,
        name: str,
        *,
        lease_s: float = 2.0,
        grace_s: float = 10.0,
        poll_s: float = 0.2,
        concurrency: int = 32,
        options: Sequence[str] = (),
        module: str = "work",
    ) -> WorkerProcess:
        """Start a worker; it is ended with the story."""
        tuning = {
            "lease-ttl": lease_s,
            "grace": grace_s,
            "poll": poll_s,
            "concurrency": concurrency,
        }
        flags = [word for flag, value in tuning.items() for word in (f"--{flag}", str(value))]
        log = self.folder / f"worker-{name}-{len(self.workers)}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [*CLI, "worker", f"{module}:app", *flags, *options, "--log-format", "text"],
                cwd=self.folder,
                env=self.environment(),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.workers.append(WorkerProcess(name, popen, log))
        return self.workers[-1]

    def perdure(
        self, *words: str, timeout_s: float = 60.0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*CLI, *words],
            cwd=self.folder,
            env=self.environment(**environment),
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def end(self) -> None:
        """End every process of this story, and show the logs (pytest keeps them for failures)."""
        if self._looking is not None:
            self._looking.close()
        for worker in self.workers:
            with suppress(ProcessLookupError):
                worker.popen.kill()
            worker.popen.wait(30)
        until("no process of the story is left", self._all_ended, within_s=20)
        for worker in self.workers:
            lines = worker.log.read_text(errors="replace").splitlines()
            print(f"--- log of worker {worker.name}, pid {worker.pid}, {len(lines)} lines")
            print("\n".join(lines[-_LOG_LINES_SHOWN:]))

    def _all_ended(self) -> bool:
        left = [one for one in processes() if self.is_ours(one.pid)]
        for one in left:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        return not left

    def is_ours(self, pid: int) -> bool:
        """Whether this process was started for this story."""
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False
        return f"{_MARK}={self.mark}".encode() in environment.split(b"\0")

    # -- jobs ----------------------------------------------------------------------------

    def enqueue(
        self, pipeline: str, items: Sequence[Any], *, module: str = "work", owner: str = ""
    ) -> list[str]:
        """Enqueue as any client of the store does; the ids in order."""
        with self._loaded(module) as app:
            return [one.id for one in app.get_pipeline(pipeline).enqueue_many(items, owner=owner)]

    @contextmanager
    def _loaded(self, module: str) -> Iterator[App]:
        """The story's app in this process, which has it for that long: a process for each would cost more."""
        known = set(sys.modules)
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("PERDURE_")]:
                patch.delenv(name)
            for name, text in {"PERDURE_STORE": self.url, **self.settings}.items():
                patch.setenv(name, text)
            patch.syspath_prepend(self.folder)
            app = importlib.import_module(module).app
            try:
                yield app
            finally:
                app.close()
                for name in set(sys.modules) - known:
                    if str(self.folder) in (getattr(sys.modules[name], "__file__", None) or ""):
                        del sys.modules[name]

    def rows(self, sql: str, *values: Any) -> list[Row]:
        """Look at the tables; changes nothing."""
        if self._looking is None:
            self._looking = looking_at(self.url)
        return self._looking.rows(sql, values)

    def job(self, id: str) -> Row:
        """One job's row."""
        return self.rows("SELECT * FROM perdure_jobs WHERE id = ?", id)[0]

    def attempts(self, id: str) -> list[Row]:
        """One job's attempts, oldest first."""
        return self.rows(
            "SELECT a.* FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job "
            "WHERE j.id = ? ORDER BY a.token",
            id,
        )

    def states(self) -> dict[str, int]:
        """How many jobs are in each state."""
        rows = self.rows("SELECT state, count(*) FROM perdure_jobs GROUP BY state")
        return {row[0]: row[1] for row in rows}

    def ledger(self) -> Ledger:
        """What the stages themselves have written down so far."""
        return Ledger.read(self.folder / "ledger.txt")

    def open_gate(self, name: str) -> None:
        """Let stages that wait for this file go on."""
        (self.folder / name).touch()

    # -- waiting -------------------------------------------------------------------------

    def started(self, id: str, stage: str, *, times: int = 1, within_s: float = 30.0) -> Ledger:
        """Wait until a stage of a job has begun, by its own word."""
        until(
            f"stage {stage} of job {id} has begun {times} times",
            lambda: len(self.ledger().of(id, stage, "start")) >= times,
            within_s=within_s,
        )
        return self.ledger()

    def all_ended(self, *, within_s: float) -> dict[str, int]:
        """Wait until every job is in a terminal state."""
        until(
            "every job has ended",
            lambda: self.states().keys() <= {"succeeded", "failed", "cancelled"},
            within_s=within_s,
        )
        return self.states()

    def judging(self, worker: WorkerProcess) -> None:
        """Wait until a worker has been heard for a whole lease, so that it may judge others."""
        number = worker.child().worker
        until(
            f"worker {worker.name} may declare others dead",
            lambda: self.rows(
                "SELECT 1 FROM perdure_workers WHERE no = ? AND beat_at - steady_at > ttl_us",
                number,
            ),
            within_s=60,
        )

    def assert_audit_is_clean(self) -> None:
        """What the command would ask finds nothing."""
        opened = open_store(self.url, SystemClock(), create=False, wait_s_max=10.0)
        try:
            assert opened.reader.audit() == []
            assert opened.reader.books().balanced
        finally:
            opened.close()


@contextmanager
def played(folder: Path, url: str | None = None) -> Iterator[Story]:
    """A story that cleans up after itself, however it ends; on a file of its own, or on that store."""
    story = Story(folder, url)
    try:
        yield story
    finally:
        story.end()
