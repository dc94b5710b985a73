"""The converter on a bad day: every part is started, and then the gateway fails twice, a worker is killed, and the
database is restarted, while users upload and wait. ``make example-converter`` runs it.

It looks on through the API, as any client would. In the end each file must be downloadable or have failed with its code, no
file may have been converted twice by commit, every kind of fault must have struck, and the books must balance; otherwise it
ends with status 1. PostgreSQL comes from the test kit of this repository; everything else is started as it would be in service.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
import psycopg
from tests.servers.postgres import Server, free_port

from perdure.demo import die_with_parent
from perdure.demo.crew import descendants

from .samples import BROKEN_PDF, make_pdf

PACKAGE = __package__
ROOT = Path(__file__).resolve().parents[PACKAGE.count(".") + 1]
PATIENCE_S = 300.0
STRUCK = """
SELECT CASE WHEN status = 'interrupted' THEN 'killed in work' ELSE 'no connection' END, count(*)
FROM perdure_attempts WHERE stage = 'convert' AND (status = 'interrupted' OR kind IN ('network', 'ambiguous')) GROUP BY 1
"""
WORKERS = ("worker A", "worker B")
FAULTS = ("slow", "no connection", "hung", "killed in work", "database crash", "503")
QUICK = {  # for the demonstration; the document's numbers are in settings.py
    "RETRY_BASE_DELAY_MS": "400",
    "RETRY_JITTER_MAX_MS": "400",
    "CIRCUIT_WINDOW": "6",
    "CIRCUIT_COOLDOWN_MS": "1000",
    "WORKER_LEASE_TTL_SEC": "3",
    "GATEWAY_TIMEOUT_MS": "30000",  # on a busy machine, too, calls that hang must not hold the queue
}


@dataclass(frozen=True)
class Sent:
    """A file that somebody has uploaded."""

    user: int
    name: str
    job_id: str


@dataclass
class Ended:
    """What it all came to; ``complaints`` is empty when everything is as promised."""

    files: list[tuple[Sent, dict[str, Any]]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)  # that struck, by kind


class Parts:
    """The processes of a converter; leaving the block ends every one of them, and a killed demo takes them along."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment, self._folder = dict(environment), folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: str) -> None:
        """Start ``python -m words``; its output goes to a file of its name."""
        command = [
            sys.executable,
            die_with_parent.__file__,
            str(os.getpid()),
            sys.executable,
            "-m",
            *words,
        ]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def pids(self, name: str) -> list[int]:
        """The processes of a part."""
        first = self._running[name].pid
        return [first, *descendants(first)]

    def kill(self, name: str) -> None:
        """End a part and what it has started, at once."""
        pids, popen = self.pids(name), self._running.pop(name)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        popen.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._running):
            self.kill(name)
        if error is not None:
            for log in sorted(self._folder.glob("*.log")):
                print(f"--- the end of {log.name}", *log.read_text().splitlines()[-20:], sep="\n")


class BadDay:
    """One converter, its users, and what happens to them."""

    def __init__(
        self, *, users: int, files: int, folder: Path, say: Callable[[str], None] = print
    ) -> None:
        self.users, self.files, self.folder, self._say = users, files, folder, say
        self.sent: list[Sent] = []
        self.clients: list[httpx2.Client] = []
        self._gateway_port, self._site_port = free_port(), free_port()
        self.site = f"http://127.0.0.1:{self._site_port}"
        self.gateway = f"http://127.0.0.1:{self._gateway_port}"
        self.database_url = ""
        self._faults: Counter[str] = Counter()
        # For those who look on: it has begun, all files have ended, and it may come down.
        self.begun, self.settled, self.may_end = (threading.Event() for _ in range(3))
        self.may_end.set()
        # Whether they have seen a file in a state; the day waits for them where such files stay as they are.
        self.is_seen: Callable[[str], bool] = lambda _: True

    def live(self) -> Ended:
        """From the start of the first part to the end of the last."""
        with ExitStack() as stack:
            self._say("starting PostgreSQL, the gateway, the site and two workers")
            self._server = stack.enter_context(Server(in_memory=True))
            self.database_url = self._server.create_database()
            self._parts = stack.enter_context(Parts(self._environment(), self.folder))
            self._start_gateway()
            self._serve("site", "api:make_api", self._site_port)
            for name in WORKERS:
                self._start_worker(name)
            self._wait("the site answers", lambda: self._answers(self.site))
            clients = (httpx2.Client(base_url=self.site, timeout=60) for _ in range(self.users))
            self.clients = [stack.enter_context(one) for one in clients]
            for client in self.clients:
                self._persist(lambda client=client: client.get("/api/jobs"))
            self.begun.set()
            self._suffer()
            ended = self._take_stock()
            self.settled.set()
            self.may_end.wait()
            return ended

    # -- what happens --------------------------------------------------------------------

    def _suffer(self) -> None:
        quarter = [range(self.files * n // 4, self.files * (n + 1) // 4) for n in range(4)]
        self._order(slow_s=0.1)
        self._upload(quarter[0])
        self._wait("something is done", lambda: self._done() > 0)
        self._say(
            f"{self._done()} of {self.files} done; the gateway is killed: connections are refused"
        )
        self._note_faults()
        self._parts.kill("gateway")
        self._upload(quarter[1])
        self._wait("the queue is held", self._is_held)
        self._wait("files are seen to wait", lambda: self.is_seen("queued"))
        self._say("the queue is held; the gateway is started again")
        self._start_gateway()
        self._wait("it flows", lambda: not self._is_held())
        self._say("it flows again by itself")
        self._order(hang=True)
        self._upload(quarter[2][:4])
        self._kill_a_worker_at_work()
        self._order()
        self._upload(quarter[2][4:])
        self._say(f"{self._done()} of {self.files} done; PostgreSQL crashes and is restarted")
        self._server.restart("immediate")
        self._faults["database crash"] += 1
        self._wait("it goes on", lambda: self._done() >= self.files // 2)
        self._say(f"{self._done()} of {self.files} done; the gateway answers 503")
        self._order(status=503)
        self._upload(quarter[3])
        self._wait("the queue is held", self._is_held)
        self._say("the queue is held; the gateway is well again")
        self._order()
        self._wait("all have ended", lambda: self._done() == self.files)
        self._retry_failed()
        self._note_faults()

    def _kill_a_worker_at_work(self) -> None:
        """With SIGKILL, all of its processes; its file is taken over when its lease has run out."""
        asked = "SELECT leased_by FROM perdure_converter_jobs WHERE leased_by IS NOT NULL"

        def holder() -> str | None:
            with psycopg.connect(self.database_url) as cx:
                pids = {int(name.rpartition(":")[2]) for (name,) in cx.execute(asked)}
            return next((one for one in WORKERS if pids & set(self._parts.pids(one))), None)

        self._wait("a call hangs", lambda: self._traffic()["faults"].get("hung", 0) > 0)
        self._wait("a file is seen in work", lambda: self.is_seen("processing"))
        self._wait("a worker has a file in hand", lambda: holder() is not None)
        victim = holder()
        assert victim is not None
        self._say(f"{victim} is killed with SIGKILL; the other one takes over")
        self._parts.kill(victim)

    def _retry_failed(self) -> None:
        """Users press Retry on what a fault of the gateway has cost all of its tries."""
        for sent, job in self._told():
            if job["status"] == "failed" and job["error"]["code"] != "GW_4XX":
                self._say(
                    f"{sent.name} has failed with {job['error']['code']}; its owner presses Retry"
                )
                path = f"/api/jobs/{sent.job_id}/retry"
                self._persist(lambda sent=sent, path=path: self.clients[sent.user].post(path))
        self._wait("all have ended", lambda: self._done() == self.files)

    def _upload(self, numbers: Sequence[int]) -> None:
        with ThreadPoolExecutor(8) as users:
            self.sent += users.map(self._upload_one, numbers)

    def _upload_one(self, number: int) -> Sent:
        user, broken = number % self.users, number % 12 == 11
        name = f"file {number + 1}{', broken' if broken else ''}.pdf"
        pdf = BROKEN_PDF + b"%d" % number if broken else make_pdf(name, [name, f"of user {user}"])
        form = {"file": (name, pdf, "application/pdf")}
        answer = self._persist(lambda: self.clients[user].post("/api/upload", files=form))
        return Sent(user, name, answer.json()["jobs"][0]["id"])

    # -- what is seen --------------------------------------------------------------------

    def _told(self) -> list[tuple[Sent, dict[str, Any]]]:
        jobs: dict[str, dict[str, Any]] = {}
        for client in self.clients:
            answer = self._persist(lambda client=client: client.get("/api/jobs"))
            jobs |= {job["id"]: job for job in answer.json()["jobs"]}
        return [(one, jobs[one.job_id]) for one in self.sent]

    def _done(self) -> int:
        return sum(job["status"] in ("complete", "failed") for _, job in self._told())

    def _is_held(self) -> bool:
        answer = self._persist(lambda: self.clients[0].get("/api/jobs"))
        return bool(answer.json()["gateway"] == "held")

    def _take_stock(self) -> Ended:
        ended = Ended(self._told())
        for sent, job in ended.files:
            answer = self._persist(
                lambda sent=sent: self.clients[sent.user].get(f"/api/jobs/{sent.job_id}/download")
            )
            if job["status"] == "complete" and sent.name.encode() not in answer.content:
                ended.complaints.append(
                    f"{sent.name} is complete, and its XML is not: {answer.text[:80]}"
                )
            if job["status"] == "failed" and job["error"] is None:
                ended.complaints.append(f"{sent.name} has failed without a code")
            if job["status"] not in ("complete", "failed"):
                ended.complaints.append(f"{sent.name} is {job['status']}")
            if ("broken" in sent.name) != (job["status"] == "failed"):
                ended.complaints.append(f"{sent.name} is {job['status']}")
        ended.complaints += self._books(len(ended.files))
        ended.faults = self._faults
        struck = ", ".join(f"{kind} {ended.faults[kind]}" for kind in FAULTS)
        self._say(f"faults that struck: {struck}")
        ended.complaints += [f"no fault: {kind}" for kind in FAULTS if not ended.faults[kind]]
        return ended

    def _traffic(self) -> dict[str, Any]:
        answer = self._persist(lambda: httpx2.get(f"{self.gateway}/traffic"))
        found: dict[str, Any] = answer.json()
        return found

    def _note_faults(self) -> None:
        """What the gateway has counted so far; the next one begins at nothing."""
        self._faults.update(self._traffic()["faults"])

    def _books(self, files: int) -> list[str]:
        """What is wrong with the books: a file that was converted twice by commit, a job that nobody can find."""
        with psycopg.connect(self.database_url) as cx:
            self._faults.update(dict(cx.execute(STRUCK).fetchall()))
            twice = cx.execute(
                "SELECT count(*) FROM (SELECT job FROM perdure_attempts WHERE stage = 'convert' AND status = 'success'"
                " GROUP BY job HAVING count(*) > 1) AS twice"
            ).fetchone()
            kept = cx.execute("SELECT count(*) FROM converter_files").fetchone()
        said = [f"{twice[0]} files were converted twice by commit"] if twice and twice[0] else []
        said += [] if files == self.files else [f"{self.files} files were to be sent, {files} were"]
        said += (
            [f"{files} files were sent, {kept[0]} are kept"] if kept and kept[0] != files else []
        )
        perdure = Path(sys.executable).with_name("perdure")
        command = [str(perdure), "audit", "--store", self.database_url]
        audit = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = (audit.stdout + audit.stderr).strip().splitlines() or ["nothing"]
        self._say(f"books: {lines[0]}; the audit says: {lines[-1]}")
        return said if audit.returncode == 0 else [*said, *lines]

    # -- parts ---------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PERDURE_")}
        where = {
            "DATABASE_URL": self.database_url,
            "GATEWAY_URL": self.gateway,
            "UPLOADS_DIR": str(self.folder / "uploads"),
            "RESULTS_DIR": str(self.folder / "results"),
        }
        return {**kept, **QUICK, **where}

    def _start_gateway(self) -> None:
        self._serve("gateway", "gateway:make_gateway", self._gateway_port)
        self._wait("the gateway answers", lambda: self._answers(f"{self.gateway}/traffic"))

    def _start_worker(self, name: str) -> None:
        words = ("worker", f"{PACKAGE}.worker:app", "--poll", "0.25")
        self._parts.start(name, "perdure.surfaces.cli", *words)

    def _serve(self, name: str, factory: str, port: int) -> None:
        quiet = ["--log-level", "warning", "--port", str(port)]
        self._parts.start(name, "uvicorn", "--factory", f"{PACKAGE}.{factory}", *quiet)

    def _order(self, **faults: Any) -> None:
        self._persist(lambda: httpx2.post(f"{self.gateway}/faults", json=faults))

    def _answers(self, address: str) -> bool:
        with suppress(httpx2.TransportError):
            return httpx2.get(address, timeout=60).status_code == 200
        return False

    def _persist(self, ask: Callable[[], httpx2.Response]) -> httpx2.Response:
        """Ask again while the server is away, as any client should; a file that comes twice is the same job."""
        found: list[httpx2.Response] = []

        def is_answered() -> bool:
            with suppress(httpx2.TransportError):
                found[:] = [ask()]
                return found[0].status_code not in (500, 503)
            return False

        self._wait("the server answers", is_answered)
        return found[0]

    def _wait(self, what: str, question: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not question():
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"not within {PATIENCE_S:g} s: {what}")
            time.sleep(0.2)


def main(words: Sequence[str] | None = None) -> int:
    """Live through a bad day and tell what became of each file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--files", type=int, default=48, help="files in all (48)")
    parser.add_argument("--users", type=int, default=4, help="users who upload them (4)")
    asked = parser.parse_args(words)
    if asked.files < 24 or not 1 <= asked.users <= asked.files:
        parser.error(
            "at least 24 files, or the faults find nothing to strike; and no more users than files"
        )
    begun_s = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begun_s:6.1f} s  {line}", flush=True)

    say(f"for this demonstration: {' '.join(f'{name}={value}' for name, value in QUICK.items())}")
    with tempfile.TemporaryDirectory() as folder:
        ended = BadDay(users=asked.users, files=asked.files, folder=Path(folder), say=say).live()
    print()
    for sent, job in ended.files:
        code = f"  {job['error']['code']}: {job['error']['message']}" if job["error"] else ""
        tries = f"{job['attemptCount']} {'try' if job['attemptCount'] == 1 else 'tries'}"
        print(f"  user {sent.user + 1}  {sent.name:22} {job['status']:9} {tries}{code}")
    counts = Counter(job["status"] for _, job in ended.files)
    print(f"\n{', '.join(f'{count} {status}' for status, count in sorted(counts.items()))}")
    for complaint in ended.complaints:
        print(f"NOT AS PROMISED: {complaint}")
    return 1 if ended.complaints else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
