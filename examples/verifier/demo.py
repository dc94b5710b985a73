"""The verifier on a bad day: the service answers 429 and 503, sends garbage and goes away, saves crash the game, hang it and eat its
memory, and the daemon is killed. ``make example-verifier`` runs it.

It looks on as an operator would, with the commands and the store. In the end each run must have its verdict or its error as
planned, every kind of fault must have struck, and the books must balance; otherwise it ends with status 1.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import yaml

from perdure.demo import die_with_parent
from perdure.demo.crew import descendants

from .app import Verifier, make_verifier
from .cli import line_of
from .runs import RunRow, all_runs
from .samples import VERDICTS, make_submission
from .settings import read_settings

PACKAGE = __package__
ROOT = Path(__file__).resolve().parents[PACKAGE.count(".") + 1]
PATIENCE_S = 300.0
SCALE = 300  # what a second of the document's is here; the document's numbers are in daemon.yaml
WAITS_S = {"initial_backoff": 60.0, "max_backoff": 3_600.0}
FAULTS = (
    "429", "429 with a hint", "503", "403", "404", "garbled answer", "no connection",
    "crash", "hang", "out of memory", "daemon killed",
)  # fmt: skip


class Planned(NamedTuple):
    """A run, what befalls it, and what is to become of it: a verdict, or the variant of a permanent error."""

    run_id: str
    sort: str
    ends: str
    orders: tuple[Mapping[str, Any], ...] = ()
    header: Mapping[str, Any] = {}


def plan() -> Iterator[Planned]:
    """Forty runs."""
    for number, sort in enumerate([*VERDICTS] * 3, start=1):
        yield Planned(f"r{number}", sort, VERDICTS[sort])
    for name, path, fault in (
        ("limited", "/files/{}.save", {"status": 429, "retry_after": "1", "count": 2}),
        ("bare-limit", "/files/{}.save", {"status": 429}),
        ("busy", "/api/runs/{}", {"status": 503, "count": 3}),
        ("busy-file", "/files/{}.save", {"status": 503, "count": 2}),
        ("garbled", "/api/runs/{}", {"body": "<html>try later</html>"}),
    ):
        yield Planned(name, "good", "passed", ({"path": path.format(name), **fault},))
    for name, status, variant in (("gone", 404, "missing"), ("secret", 403, "forbidden")):
        order = {"path": f"/files/{name}.save", "status": status}
        yield Planned(name, "good", f"download.{variant}", (order,))
    yield Planned("picture", "no save", "game.bad_save")
    yield Planned("console", "injected", "game.script_injection")
    yield Planned("old", "good", "game.old_version", header={"version": "1.7"})
    yield Planned("modded", "good", "game.mod_mismatch", header={"mods": {"cheats": "1.0"}})
    yield Planned("desynced", "desync", "replay.refused")
    yield Planned("endless", "hang", "replay.timeout")
    yield Planned("moles", "hungry", "replay.crashed")
    yield Planned("edge", "crash", "passed")  # its player mends it, and an operator resets it
    yield Planned("held", "good", "passed", ({"path": "/files/held.save", "hold": True},))
    yield from (Planned(f"away-{n}", "good", "passed") for n in (1, 2, 3))


class BadDay:
    """A service, a daemon, and what happens to them."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder, self._say = folder, say
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.service = f"http://127.0.0.1:{self._port}"
        self.runs = {one.run_id: one for one in plan()}
        self._faults: Counter[str] = Counter()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def live(self) -> list[str]:
        """From the start of the first part to the end of the last; what is not as promised."""
        self._write_settings()
        with ExitStack() as stack:
            self._parts = stack.enter_context(self._ended_with_us())
            self._verifier: Verifier = make_verifier(*read_settings())
            stack.callback(self._verifier.close)
            self._suffer()
            return self._take_stock()

    # -- what happens --------------------------------------------------------------------

    def _suffer(self) -> None:
        self._start_service()
        self._submit(one for one in self.runs if not one.startswith("away"))
        self._order(*(order for one in self.runs.values() for order in one.orders))
        self._order({"path": "/api/runs", "status": 503}, {"path": "/games/2.0.zip", "body": "PK"})
        self._say(f"the service has {len(self.runs) - 3} runs; the daemon is started")
        self._start_daemon()
        self._wait("a call of the service hangs", lambda: "slow answer" in self._traffic())
        self._wait("half of them have ended", lambda: self._ended() > len(self.runs) // 2)
        self._say(
            f"{self._ended()} have ended; the daemon is killed with SIGKILL in the middle of a run"
        )
        self._kill("daemon")
        self._start_daemon()
        self._wait("its run is taken up", lambda: self._row("held").status == "passed")
        self._say(
            "its run was taken up by the next daemon; the service goes away, with three runs in the queue"
        )
        self._order({"path": "/files/away*", "hold": True, "count": 3})
        self._submit(one for one in self.runs if one.startswith("away"))
        self._wait("one is in work", lambda: "processing" in self._statuses("away"))
        self._faults.update(self._traffic())
        self._kill("service")
        self._wait("nobody answers", lambda: bool(self._struck()["no connection"]))
        self._start_service()
        self._say("the service is back; nothing new comes, and what waits is tried again by itself")
        self._wait("all have ended", lambda: self._ended() == len(self.runs))
        self._say("all have ended; the player of `edge` sends a save that does not crash the game")
        self.runs["edge"] = self.runs["edge"]._replace(sort="good")
        self._submit(["edge"])
        self._command("query", "errors")
        self._command("admin", "reset", "--class", "retryable", "--text", "IndexError", "--force")
        self._wait("it is verified", lambda: self._row("edge").status == "passed")
        self._command("query", "stats")
        self._faults.update(self._traffic())

    def _submit(self, names: Any) -> None:
        """Somebody submits these runs; the first are the oldest."""
        begun, named = datetime.now(UTC) - timedelta(days=2), set(names)
        chosen = [
            make_submission(
                one.run_id, one.sort, number, begun + timedelta(minutes=number), **one.header
            )
            for number, one in enumerate(self.runs.values(), start=1)
            if one.run_id in named
        ]
        httpx2.post(f"{self.service}/submit", json=chosen).raise_for_status()

    def _order(self, *orders: Mapping[str, Any]) -> None:
        httpx2.post(f"{self.service}/faults", json=list(orders)).raise_for_status()

    def _command(self, *words: str) -> None:
        """One of the verifier's commands, and what it says."""
        print(f"\n$ python -m {PACKAGE} {' '.join(words)}", flush=True)
        subprocess.run([sys.executable, "-m", PACKAGE, *words], cwd=ROOT, check=True)
        print(flush=True)

    # -- what is seen --------------------------------------------------------------------

    def _rows(self) -> dict[str, RunRow]:
        return {row.run_id: row for row in all_runs(self._verifier)}

    def _row(self, run_id: str) -> RunRow:
        return self._rows()[run_id]

    def _ended(self) -> int:
        return sum(row.has_ended for row in self._rows().values())

    def _statuses(self, prefix: str) -> set[str]:
        return {row.status for row in self._rows().values() if row.run_id.startswith(prefix)}

    def _traffic(self) -> dict[str, int]:
        found: dict[str, int] = httpx2.get(f"{self.service}/traffic").json()["faults"]
        return found

    def _struck(self) -> Counter[str]:
        """The faults that attempts have met beside the service's."""
        found: Counter[str] = Counter()
        for row in self._rows().values():
            for one in self._verifier.app.job(row.job_id).attempts():
                found["no connection"] += "ConnectError" in one.message
                found["crash"] += "IndexError" in one.message
                found["out of memory"] += "MemoryError" in one.message
                found["hang"] += one.message.startswith("replay.timeout")
                found["daemon killed"] += one.status == "interrupted"
        return found

    def _take_stock(self) -> list[str]:
        rows = self._rows()
        wrong = []
        for one in self.runs.values():
            row = rows[one.run_id]
            print(f"  {line_of(row)}")
            is_error = row.status == "error"
            became = (row.error_message or "").partition(":")[0] if is_error else row.status
            if became != one.ends or not row.has_ended:
                wrong.append(f"{one.run_id} is {became}, and should be {one.ends}")
            if is_error and not row.error_class:
                wrong.append(f"{one.run_id} has an error without a class")
        if len(rows) != len(self.runs):
            wrong.append(f"{len(self.runs)} runs were submitted, and {len(rows)} are known")
        faults = self._faults + self._struck()
        self._say(f"faults that struck: {', '.join(f'{one} {faults[one]}' for one in FAULTS)}")
        wrong += [f"no fault: {one}" for one in FAULTS if not faults[one]]
        words = ("-m", "perdure.surfaces.cli", "audit", "--store", self._verifier.app.url)
        audit = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False
        )
        self._say(f"books: {' '.join((audit.stdout or audit.stderr).split())}")
        return [*wrong, "the books do not balance"] if audit.returncode else wrong

    # -- its parts -----------------------------------------------------------------------

    def _write_settings(self) -> None:
        retry = {name: seconds / SCALE for name, seconds in WAITS_S.items()}
        content = {
            "service": self.service,
            "database": f"sqlite:///{self.folder}/verifier.db",
            "data": str(self.folder / "data"),
            "polling_interval": 900 // SCALE,
            "games": {"burrow": ["any%", "all-gems"]},
            "retry": retry,
            "replay": {"timeout": 10, "memory_mb": 256},
        }
        path = self.folder / "daemon.yaml"
        path.write_text(yaml.safe_dump(content))
        os.environ["VERIFIER_CONFIG"] = str(path)
        os.environ["SUBMISSIONS_FILE"] = str(self.folder / "submissions.jsonl")
        os.environ["PERDURE_LEASE_TTL_S"] = "3"
        waits = ", ".join(
            f"{name} {WAITS_S[name]:g} → {value:g} s" for name, value in retry.items()
        )
        self._say(
            f"for this demonstration a second is 1/{SCALE} of one: {waits}, polling_interval 900 → "
            f"{900 // SCALE} s; a lease lasts 3 s, a replay at most 10 s and 256 MiB"
        )

    def _start_service(self) -> None:
        words = ("--factory", f"{PACKAGE}.service:make_service", "--port", str(self._port))
        self._start("service", "-m", "uvicorn", *words, "--log-level", "warning")
        self._wait("the service answers", self._answers)

    def _start_daemon(self) -> None:
        self._start("daemon", "-m", PACKAGE, "daemon")

    def _answers(self) -> bool:
        with suppress(httpx2.TransportError):
            return httpx2.get(f"{self.service}/traffic").status_code == 200
        return False

    def _start(self, name: str, *words: str) -> None:
        """A part; its output goes to a file of its name."""
        ours = [sys.executable, die_with_parent.__file__, str(os.getpid()), sys.executable]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*ours, *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def _kill(self, name: str) -> None:
        """End a part and what it has started, at once."""
        part = self._running.pop(name)
        for pid in [part.pid, *descendants(part.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        part.wait()

    @contextmanager
    def _ended_with_us(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            for log in sorted(self.folder.glob("*.log")):
                print(f"--- the end of {log.name}", *log.read_text().splitlines()[-20:], sep="\n")
            raise
        finally:
            for name in list(self._running):
                self._kill(name)

    def _wait(self, what: str, question: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not question():
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"not within {PATIENCE_S:g} s: {what}")
            time.sleep(0.2)


def main() -> int:
    """Live through a bad day, and tell what became of each run."""
    begun_s = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begun_s:6.1f} s  {line}", flush=True)

    with tempfile.TemporaryDirectory(prefix="perdure-verifier-") as folder:
        wrong = BadDay(Path(folder), say).live()
    for one in wrong:
        say(f"NOT AS PROMISED: {one}")
    if not wrong:
        say("everything is as it must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
