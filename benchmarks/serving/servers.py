"""Servers as processes of their own: started, measured from outside, stopped; and tokens for those who ask them."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perdure import App
from perdure.app.surface.access import create_token
from perdure.model.operations import Deed

ROOT = Path(__file__).parents[2]
START_S_MAX = 60.0
CLI = (sys.executable, "-m", "perdure.surfaces.cli")
APP = "benchmarks.serving.our_app:app"
OURS = (*CLI, "serve", APP, "--port", "0")
BARE = (sys.executable, "-m", "benchmarks.serving.bare")
WORKER = (*CLI, "worker", APP)
_HERTZ = os.sysconf("SC_CLK_TCK")


class ServerProcess:
    """A server that listens."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port

    def cpu_s(self) -> float:
        """CPU seconds that it has taken by now."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _HERTZ

    def memory_mib(self) -> float:
        """What it has in memory now."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
        return int(line.split()[1]) / 1024


@contextmanager
def running(command: Sequence[str], url: str, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process on a store, until the end of the block."""
    # Not that of whoever measures: its store and its settings are none of ours.
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PERDURE_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**kept, "BENCH_STORE": url, "PYTHONPATH": _path()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def serving(
    command: Sequence[str], url: str, folder: Path, log: str = "server.log"
) -> Iterator[ServerProcess]:
    """A server, from when it listens until the end of the block."""
    said = folder / log
    with running(command, url, said) as process:
        give_up_at = time.monotonic() + START_S_MAX
        while not (found := re.search(r"127\.0\.0\.1:(\d+)/api", said.read_text())):
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise SystemExit(f"the server did not come up:\n{said.read_text()[-2000:]}")
            time.sleep(0.02)
        yield ServerProcess(process.pid, int(found[1]))


def token(app: App, owner: str, scopes: Sequence[str] = ("submit", "read")) -> str:
    """A token of that owner, who may submit and read, or of other scopes."""
    made, _ = create_token(
        app._session,
        name=owner or "everybody",
        owner=owner,
        scopes=scopes,
        expires=None,
        deed=Deed("bench", ""),
    )
    return made


def _path() -> str:
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
