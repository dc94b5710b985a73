"""A ``perdure worker`` beside this process: it has a session of its own, and drains when we are gone.

It holds the reading end of a pipe of which we have the other: whatever we die of, it is told. The first line there
tells it what it must know of the app, so that it need not start another process to find out. A stage
that crashes its process hurts nobody here. What it says goes to our standard error, or to a file from which we
repeat it; never through a pipe, because a stage that prints must not fail for lack of somebody who listens.
"""

import math
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import BinaryIO

import msgspec

from perdure.engine.supervise.supervisor import Restarts, signal_name
from perdure.model.errors import PerdureError
from perdure.model.outcomes import Death
from perdure.model.workers import EXIT_RECYCLED, WorkerView

_YOUNG_S = 10.0  # one that ends sooner, twice in a row, will not do better the third time
_ENDED_S_MAX = 15.0  # beyond the grace
_WORKERS_S = 1.0  # between looks for working processes that have died
_STDERR = 2


class Hired:
    """One worker; started again when it is killed. ``knows`` is what it is told; ``aside`` keeps what it says."""

    def __init__(
        self,
        command: Sequence[str],
        knows: bytes,
        *,
        aside: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = list(command)
        self._knows = knows + b"\n"
        self._monotonic = monotonic
        self._output: BinaryIO | None = tempfile.TemporaryFile() if aside else None  # noqa: SIM115
        self._read_to = 0
        self._lifeline: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._too_soon = 0
        self._orders = 0
        self._restarts = Restarts()  # of starts for which the system had no process to give
        self._notes: list[str] = []  # of our own, beside what the worker says
        self._buried: set[int] = set()  # working processes of it whose death was told
        self._look_again_at = -math.inf  # at these
        self.restarts = 0  # of it and of its working processes

    @property
    def running(self) -> bool:
        """Whether there is one now."""
        return self._process is not None and self._process.poll() is None

    def look(self) -> None:
        """See that there is one; raises when none will live."""
        process = self._process
        if process is None:
            if self._monotonic() >= self._restarts.next_at:
                self._start()
        elif process.poll() is not None:
            young = self._monotonic() - self._started_at < _YOUNG_S
            self._too_soon = self._too_soon + 1 if young else 0
            if process.returncode > 0 or self._too_soon >= 2:
                raise PerdureError(
                    f"the worker ended by itself with status {process.returncode}; it has said why"
                )
            status = process.returncode
            killed_by = None if status == 0 else signal_name(-status)
            self._note_restart("the worker", Death("exited", status, killed_by))
            self._start()

    def look_at(
        self, workers: Callable[[], Iterable[WorkerView]], *, at_once: bool = False
    ) -> None:
        """Notice, now and then, which of its working processes have died since; it has started others in their place."""
        if self._monotonic() < self._look_again_at and not at_once:
            return
        self._look_again_at = self._monotonic() + _WORKERS_S
        pid = None if self._process is None else self._process.pid
        mine = f"{socket.gethostname()}:{pid}"
        for one in workers():
            if one.name != mine or one.death_json is None or one.no in self._buried:
                continue
            self._buried.add(one.no)
            death = msgspec.json.decode(one.death_json, type=Death)
            if death.why != "stopped" and death.exit_status not in (0, EXIT_RECYCLED):
                self._note_restart("a working process", death)

    def _note_restart(self, what: str, death: Death) -> None:
        self.restarts += 1
        self._notes.append(f"{what} {death.in_words()}; another one is started in its place")

    def order(self) -> None:
        """Let it finish what it has in hand and end; the second time, give that back at once."""
        self._orders += 1
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def close(self, grace_s: float, rest: Callable[[], None]) -> None:
        """Wait until it has ended; ``rest`` is called in between. Killed when it takes far too long."""
        give_up_at = self._monotonic() + grace_s + _ENDED_S_MAX
        if not self._orders:
            self.order()
        while self.running:
            if self._monotonic() > give_up_at and self._process is not None:
                self._process.kill()  # its children see their own pipes close
                self._process.wait()
            else:
                rest()
        self._let_go()

    def take_words(self) -> list[str]:
        """What it has said since the last time, if that was put aside; and what we have to say of it."""
        notes, self._notes = self._notes, []
        if self._output is None:
            return notes
        # Not read(): the file's place is shared with the worker, which writes there.
        text = os.pread(self._output.fileno(), 1 << 20, self._read_to)
        whole = text[: text.rfind(b"\n") + 1]
        self._read_to += len(whole)
        return notes + whole.decode("utf-8", "replace").splitlines()

    def forget(self) -> None:
        """Drop what it has said."""
        if self._output is not None:
            self._output.close()
            self._output = None

    def _start(self) -> None:
        self._let_go()
        self._process = None
        try:
            self._process = self._spawn()
        except OSError as error:  # no process, memory or file is to be had now: look again later
            self._restarts.after(0.0, self._monotonic(), well=False)
            if self._restarts.quick == 1:
                why = error.strerror or error
                self._notes.append(f"no worker can be started, and it is tried again: {why}")
            return
        self._restarts = Restarts()
        self._started_at = self._monotonic()

    def _spawn(self) -> subprocess.Popen[bytes]:
        lifeline, ours = os.pipe()
        output = _STDERR if self._output is None else self._output
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
                [*self._command, "--lifeline", str(lifeline)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(lifeline,),
                start_new_session=True,
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(lifeline)
        self._lifeline = ours
        with suppress(BrokenPipeError):  # it has ended, which the next look finds
            os.write(ours, self._knows)
        return process

    def _let_go(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
