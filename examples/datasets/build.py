"""Build a data set: `python -m examples.datasets.build NAME SOURCE.jsonl`. The same words go on with the same data set.

Every line of the source is a sample, also one that cannot be read or kept: that is a dead letter with the line in it. The exit
status is that of `perdure run`: 0 completed, 3 partial success, 4 failed, 5 aborted.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import msgspec
from examples.datasets.app import app, samples
from examples.datasets.sinks import write_files

from perdure import Item, OutputError, PerdureError, RunAborted, RunView
from perdure.checks import json_of

EXITS = {"completed": 0, "partial_success": 3, "failed": 4, "aborted": 5, "cancelled": 6}
SAMPLE_BYTES_MAX = 1_048_576  # Perdure keeps no larger item
LINE_BYTES_MAX = 2 * SAMPLE_BYTES_MAX  # a sample may be written with escapes
RAW_BYTES_MAX = 200_000  # of a line that is no sample; a byte of it may take five
PLAIN_ID = r"[!-~]{1,60}"  # what may stand in a header
NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,59}"


class NoSample(Exception):
    """A text that no sample can be read from, or none that a store can keep; it says why."""


def items_of(name: str, source: Path) -> Iterator[Item]:
    """The samples of a file, each under a key that is its data set's own; what is none is kept with the reason."""
    with source.open("rb") as file:
        for number, (line, size) in enumerate(lines_of(file), 1):
            try:
                given = read_sample(line)
            except NoSample as wrong:
                raw = repr(line[:RAW_BYTES_MAX])
                given = {"line": number, "bytes": size, "unreadable": str(wrong), "raw": raw}
            yield item_of(name, given, number)


def lines_of(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Each line and how long it is; of one that is too long the beginning, so that it fits in memory."""
    while line := file.readline(LINE_BYTES_MAX + 1):
        size, part = len(line), line
        while len(part) > LINE_BYTES_MAX and not part.endswith(b"\n"):
            part = file.readline(LINE_BYTES_MAX + 1)
            size += len(part)
        yield line, size


def read_sample(line: bytes) -> dict[str, object]:
    """The object in a text of JSON, or `NoSample`."""
    if len(line) > LINE_BYTES_MAX:
        raise NoSample(f"the line has more than {LINE_BYTES_MAX} bytes")
    try:
        given = msgspec.json.decode(line, type=dict[str, object])
        json_of(line)  # refuses what no store can keep: half a surrogate pair, say
    except RecursionError:
        raise NoSample("it is nested too deep") from None
    except OutputError as wrong:
        raise NoSample(wrong.rule) from None
    except (msgspec.MsgspecError, UnicodeError) as wrong:
        raise NoSample(str(wrong)) from None
    size = len(msgspec.json.encode(given))
    if size > SAMPLE_BYTES_MAX:
        raise NoSample(f"as JSON it has {size} bytes; a sample has at most {SAMPLE_BYTES_MAX}")
    return given


def item_of(name: str, given: dict[str, object], number: int, known_as: str | None = None) -> Item:
    """A sample on its way: known by the data set's name and its id, to the provider by ``known_as`` where names are not unique.

    The name is in the key because two data sets of one source have the same ids, and a dead letter cannot be driven again
    while another job has its key. A line without an id has a key that no id gives.
    """
    id = given.get("id")
    if not isinstance(id, str) or not id:
        rest = f":line-{number}"
    else:
        rest = f"/{id if re.fullmatch(PLAIN_ID, id) else sha256(id.encode()).hexdigest()}"
    return Item(given, key=f"{name}{rest}", request_id=f"{known_as or name}{rest}")


def checked_name(given: str) -> str:
    """The name of a data set; it names files, too."""
    if not re.fullmatch(NAME, given):
        raise argparse.ArgumentTypeError(f"{given!r} must have 1 to 60 of: A-Z a-z 0-9 . _ -")
    return given


def status_of(view: RunView) -> dict[str, int | str]:
    """The run in the document's words: total, succeeded, failed, dlq, and what that comes to."""
    counts = view.counts
    return {
        "status": view.status.value,
        "total": counts.total,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "dlq": app.dead.count(run=view.no).count,
        "skipped": counts.cancelled,
        "pending": counts.open,
    }


def main() -> int:
    """Feed, wait, write, and say what has become of the samples."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("name", type=checked_name, help="what the data set is called")
    options.add_argument("source", type=Path, help="a file of JSON lines: id, text")
    options.add_argument("--failure-budget", type=float, help="share that may fail (0.10)")
    options.add_argument("--check-interval", type=int, help="items between two looks at it (1000)")
    asked = options.parse_args()
    try:
        asked.source.open("rb").close()  # else a name that is mistyped would have begun a data set
        run = samples.run(
            items_of(asked.name, asked.source),
            name=asked.name,
            failure_budget=asked.failure_budget,
            check_every=asked.check_interval,
        )
        try:
            run.wait()
        except RunAborted as aborted:
            print(aborted, file=sys.stderr)
        files = write_files(run, asked.name)
    except (PerdureError, OSError) as wrong:
        print(f"build: {wrong}", file=sys.stderr)
        return 2
    status = status_of(run.view())
    if run.fed is not None and run.fed.repeated:
        status["repeated"] = run.fed.repeated  # further lines with an id that the source had before
    print(" ".join(f"{name}={value}" for name, value in status.items()))
    print(*(f"{path}: {rows} rows" for path, rows in files.items()), sep="\n")
    return EXITS.get(str(status["status"]), 4)  # it may run again, driven by another


if __name__ == "__main__":
    sys.exit(main())
