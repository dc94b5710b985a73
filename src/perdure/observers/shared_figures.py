"""Numbers of a process in a piece of memory that other processes can read.

Always true:

* A series is a metric and the values of its labels. It has a cell for each of its numbers (`Metric.width`).
* A cell only grows, and a series is neither removed nor moved: whoever reads at whatever moment sees numbers that never
  fall. A process that is killed loses nothing, since nothing has to be sent.
* One process at a time writes to a piece. The next one that has it goes on from what it finds there.

A piece begins with a mark, which says how it is laid out, and with how many bytes of names there are. The names of
the series follow, in the order of their cells. A name is written before it is counted, so that half a name is never read.
Where there is no more room, a new series has cells that nobody reads: the numbers of all others stay right.
"""

import mmap
import os
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from perdure.model.metrics import METRICS, Metric

Series = tuple[str, tuple[str, ...]]  # the name of a metric, and its labels' values

_HEAD_BYTES = 16
_NAMES_BYTES = 128 * 1024
PIECE_BYTES = (
    512 * 1024
)  # room for some thousands of series; a page that is not written to takes no memory
_CELLS = (PIECE_BYTES - _NAMES_BYTES) // 8
_SIZE = struct.Struct("<H")
_KNOWN: Mapping[str, Metric] = {one.name: one for one in METRICS}
_UNREAD = max(one.width for one in METRICS)  # cells at the end that belong to no series
# Another version of this program may have another table, and finds nothing of use here.
_MARK = zlib.crc32(repr((METRICS, PIECE_BYTES)).encode()) + 1

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, tuple[str, ...]]).decode


class FigureCells:
    """The cells of one piece of memory, for the process that writes there."""

    def __init__(self, piece: bytearray | mmap.mmap | None = None) -> None:
        memory = memoryview(bytearray(PIECE_BYTES) if piece is None else piece)
        self._names = memory[_HEAD_BYTES:_NAMES_BYTES]
        self._head = memory[:_HEAD_BYTES].cast("Q")
        self.numbers = memory[_NAMES_BYTES:PIECE_BYTES].cast("d")
        self._places: dict[Series, int] = {}
        self._end = 0
        if self._head[0] not in (0, _MARK):
            memory[:] = bytes(PIECE_BYTES)
        self._head[0] = _MARK
        for series in _names(memory):
            self._places[series] = self._end
            self._end += _KNOWN[series[0]].width

    def place(self, metric: Metric, *labels: str) -> int:
        """The first cell of a series."""
        series = (metric.name, labels)
        found = self._places.get(series)
        return self._add(series, metric.width) if found is None else found

    def read(self) -> dict[Series, list[float]]:
        """All numbers, as another process would read them."""
        return {
            series: list(self.numbers[first : first + _KNOWN[series[0]].width])
            for series, first in list(self._places.items())
        }

    def _add(self, series: Series, width: int) -> int:
        name, used = _encode(series), self._head[1]
        entry = _SIZE.pack(len(name)) + name
        end = used + len(entry)
        if end > len(self._names) or self._end + width > _CELLS - _UNREAD:
            return _CELLS - _UNREAD
        self._names[used:end] = entry
        self._head[1] = end
        first = self._places[series] = self._end
        self._end += width
        return first


class SharedCells:
    """Pieces of memory for several processes; made by one, and found by the others under the same file number."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        if hasattr(os, "memfd_create"):
            self.file = os.memfd_create("perdure-figures")
        else:  # a file that has no name any more, as on macOS
            import tempfile

            with tempfile.TemporaryFile() as file:
                self.file = os.dup(file.fileno())
        os.ftruncate(self.file, pieces * PIECE_BYTES)

    def close(self) -> None:
        """Let go of it; others that have it keep it."""
        with suppress(OSError):
            os.close(self.file)


def cells_in(file: int, piece: int) -> FigureCells:
    """A piece of the memory behind this file number, to write there."""
    return FigureCells(mmap.mmap(file, PIECE_BYTES, offset=piece * PIECE_BYTES))


def read_sums(memory: mmap.mmap) -> dict[Series, list[float]]:
    """The numbers of all pieces together, as they are now.

    Not by a read of the file: it may be in the middle of a number that is just written.
    """
    pieces, sums = memoryview(memory), dict[Series, list[float]]()
    for begin in range(0, len(pieces), PIECE_BYTES):
        one = _read(pieces[begin : begin + PIECE_BYTES])
        for series, numbers in one.items():
            found = sums.get(series)
            sums[series] = (
                list(numbers)
                if found is None
                else [a + b for a, b in zip(found, numbers, strict=True)]
            )
    return sums


def _read(memory: memoryview) -> dict[Series, list[float]]:
    if memory[:_HEAD_BYTES].cast("Q")[0] != _MARK:
        return {}
    numbers, found, first = memory[_NAMES_BYTES:].cast("d"), {}, 0
    for series in _names(memory):
        width = _KNOWN[series[0]].width
        found[series] = list(numbers[first : first + width])
        first += width
    return found


def _names(memory: memoryview) -> list[Series]:
    used, names = memory[:_HEAD_BYTES].cast("Q")[1], memory[_HEAD_BYTES:_NAMES_BYTES]
    found, at = [], 0
    while at < used:
        (size,) = _SIZE.unpack_from(names, at)
        at += _SIZE.size
        found.append(_decode(bytes(names[at : at + size])))
        at += size
    return found
