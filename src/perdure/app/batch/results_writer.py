"""The results of a run on their way into files, as they are there: values, and failures beside them."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal

from perdure.app.runs import Sink, result_of
from perdure.engine.batch.results import Seen, as_ended, in_order
from perdure.engine.pauses import Absence, Pauses
from perdure.model.errors import CallerError, StoreUnavailable
from perdure.model.runs import ItemView, RunView
from perdure.model.states import State
from perdure.ports import Reader

_AGAIN_S = 1.0
AWAY_S_MAX = 60.0  # a restart of a server; what takes longer is for the caller to know


class Writer:
    """Writes until ``settled`` is set, which says that nothing more will end, and then what there still is."""

    def __init__(
        self,
        reader: Reader,
        run: RunView,
        order: Literal["items", "ended"],
        settled: threading.Event,
        results: Sink | None,
        failures: Sink | None,
        aliases: Mapping[str, str],
        asked: Callable[[], int] = lambda: 0,
    ) -> None:
        self._reader = reader
        self._run = run
        self._way = {"items": in_order, "ended": as_ended}[order]
        self._settled = settled
        self._sinks = [sink for sink in (results, failures) if sink is not None]
        self._results = results
        self._failures = failures
        self._aliases = aliases
        self._asked = asked
        self._absence = Absence(AWAY_S_MAX)
        self._given = Seen()  # to sinks that cannot take it back
        self.results = 0
        self.failures = 0

    def write(self) -> None:
        """Write until all has ended; a store that is away for a moment has us begin again, unless we are to stop."""
        while self._sinks:
            try:
                self._write_all()
            except StoreUnavailable:
                told_to_stop = self._settled.is_set() and self._asked() > 0
                if self._absence.is_too_long() or told_to_stop:
                    raise
                if self._settled.wait(_AGAIN_S):  # which may have been set long ago
                    time.sleep(_AGAIN_S)
                self._begin_again()
            except OSError as error:
                raise CallerError(
                    f"the results cannot be written: {error.strerror or error}; make room and go on"
                ) from error
            else:
                return

    def _write_all(self) -> None:
        pauses = Pauses()

        def rest() -> None:
            self._absence.end()  # all that there is was read
            self._flush()
            self._settled.wait(pauses.next_s())

        for item in self._way(
            self._reader, self._run, redriven=False, rest=rest, stopped=self._settled.is_set
        ):
            pauses.begin()
            if item.state is State.SUCCEEDED:
                self.results += 1
                self._put(self._results, item)
            else:
                self.failures += 1
                self._put(self._failures, item)
        self._flush()  # on this thread, which may wait for a pipe's reader and holds up nobody

    def _flush(self) -> None:
        for sink in self._sinks:
            sink.flush()

    def _put(self, sink: Sink | None, item: ItemView) -> None:
        if sink is not None and (sink.rewinds or self._given.add(item.no)):
            sink.write(result_of(item, self._aliases))

    def _begin_again(self) -> None:
        self.results = self.failures = 0
        for sink in self._sinks:
            sink.begin_again()
