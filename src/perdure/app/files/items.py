"""Items from files: JSON lines and CSV, read one at a time."""

import csv
import io
import json
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from perdure.engine.batch.item_jobs import FileItem, NothingNow, Unreadable
from perdure.model.errors import CallerError, PerdureError
from perdure.model.limits import PAYLOAD_BYTES_MAX

FORMS = ("jsonl", "csv", "tsv")
_FORMS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers", ".parquet")
_ZIP = b"PK\x03\x04"  # how an archive begins, and so most spreadsheets do
_FIELD_CHARS_MAX = PAYLOAD_BYTES_MAX
_LINE_BYTES_MAX = 8 * PAYLOAD_BYTES_MAX  # what an item may have, written with escapes
_SPACE = b" \t\r\n"  # around a value; with its end a line that is cut off seems to end on the next
_AHEAD_MAX = 1_000


def items_of(source: Any, form: str | None = None) -> Iterable[Any]:
    """The items of an iterable; those of a file, if a path is given."""
    if isinstance(source, str | os.PathLike):
        return items_in(Path(source), form)
    if isinstance(source, bytes | bytearray | Mapping) or not isinstance(source, Iterable):
        raise CallerError(
            f"items are {type(source).__name__}; pass an iterable of items, or the path of a .jsonl or .csv file"
        )
    return source


def items_in(path: Path, form: str | None = None) -> Iterator[Any]:
    """The items of a file: a JSON value a line, or a CSV row as an object. A line that cannot be read says so."""
    if path.is_dir():
        raise CallerError(f"{path} is a folder; name a file of items")
    known = form or _FORMS.get(path.suffix.lower())
    if known not in FORMS:
        raise CallerError(f"{path}: {_unknown_form(path.suffix.lower())}")
    if not path.exists():
        raise CallerError(
            f"{path}: there is no such file; check the name, and the folder that you are in"
        )
    if path.is_file():  # a pipe is not opened twice
        _refuse_archive(path)
    return _read(path, known)


def _unknown_form(suffix: str) -> str:
    if suffix in _SPREADSHEETS:
        return f"a {suffix} file is no list of items; save it as .csv, or write each row as a line of a .jsonl file"
    if suffix == ".json":
        return "a .json file is one value; write one item a line, as jq -c '.[]' does, and name it .jsonl"
    return (
        f"items are read from JSON lines and CSV, and the ending {suffix!r} is of neither; name it .jsonl, "
        ".csv or .tsv, or say what it is with --format"
    )


def items_from(file: BinaryIO, name: str, form: str) -> Iterator[Any]:
    """The items of an open file, standard input say; ``form`` is jsonl, csv or tsv."""
    return (
        _json_lines(file, name)
        if form == "jsonl"
        else _rows(file, name, "\t" if form == "tsv" else ",")
    )


def json_values(file: BinaryIO, name: str) -> Iterator[Any]:
    """The values of JSON lines; one that cannot be read is an error."""
    for read in _json_lines(file, name):
        if isinstance(read, Unreadable):
            raise CallerError(read.why)
        yield read.item


def _refuse_archive(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(len(_ZIP))
    except OSError as error:
        raise _unreadable(path, error) from None
    if head == _ZIP:
        raise CallerError(
            f"{path} is a spreadsheet or another archive, whatever its name; save it as .csv or .jsonl"
        )


def _unreadable(path: Path, error: OSError) -> CallerError:
    return CallerError(f"{path} cannot be read: {error.strerror or error}")


def _read(path: Path, form: str) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            yield from items_from(file, path.name, form)
    except OSError as error:
        raise _unreadable(path, error) from None


def _json_lines(file: BinaryIO, name: str) -> Iterator[Any]:
    for number, line in enumerate(_lines(file), start=1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not text.strip():
            continue
        if len(line) > _LINE_BYTES_MAX:
            yield Unreadable(f"{name} line {number} has more than {_LINE_BYTES_MAX} bytes")
            continue
        where = f"{name} line {number}"
        if b"\0" in text.strip(b"\0\r\n "):  # every other byte of UTF-16 is, and none of JSON
            yield Unreadable(_not_utf_8(where, "UTF-16"))
            continue
        try:
            yield FileItem(json.loads(text.rstrip(_SPACE).decode()), where)
        except UnicodeDecodeError:
            yield Unreadable(_not_utf_8(where))
        except (ValueError, RecursionError) as error:
            yield Unreadable(f"{where} is no JSON value ({_first_line(error)})")


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; a line that is too long is cut to one byte more than is allowed, so that it is noticed."""
    while line := file.readline(_LINE_BYTES_MAX + 1):
        rest = line
        while len(rest) > _LINE_BYTES_MAX and not rest.endswith(b"\n"):
            rest = file.readline(_LINE_BYTES_MAX + 1)
        yield line


def lively(items: Iterable[Any], *, silence_s: float = 0.5) -> Iterator[Any]:
    """The same items, and a word when none has come for a while; they are read on a thread of their own."""
    waiting: queue.Queue[Any] = queue.Queue(_AHEAD_MAX)
    over = object()
    failed: list[Exception] = [CallerError("the items could not be read to their end")]

    def read() -> None:
        try:
            for item in items:
                waiting.put(item)
            failed.clear()
        except (PerdureError, OSError, ValueError) as error:
            failed[:] = [error]
        finally:  # whatever happens, nobody waits for us
            waiting.put(over)

    threading.Thread(target=read, name="perdure-items", daemon=True).start()
    while True:
        try:
            item = waiting.get(timeout=silence_s)
        except queue.Empty:
            yield NothingNow()
            continue
        if item is over:
            break
        yield item
    if failed:
        raise failed[0]


def _rows(file: BinaryIO, name: str, delimiter: str) -> Iterator[Any]:
    csv.field_size_limit(_FIELD_CHARS_MAX)
    with io.TextIOWrapper(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            names = next(reader, None)
        except csv.Error as error:
            raise CallerError(f"{name}: its head cannot be read ({error})") from None
        if names is None:
            return
        if any("\0" in one for one in names):
            raise CallerError(_not_utf_8(f"{name}: its head", "UTF-16"))
        if not _is_utf_8(names):
            raise CallerError(_not_utf_8(f"{name}: its head"))
        if len(set(names)) != len(names):
            raise CallerError(f"{name}: two columns have the same name; its head is {names!r}")
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield Unreadable(f"{name} line {reader.line_num}: {error}")
                continue
            if not row:
                continue
            if len(row) != len(names):
                yield Unreadable(
                    f"{name} line {reader.line_num} has {len(row)} fields, its head {len(names)}"
                )
                continue
            if not _is_utf_8(row):
                yield Unreadable(_not_utf_8(f"{name} line {reader.line_num}"))
                continue
            yield FileItem(dict(zip(names, row, strict=True)), f"{name} line {reader.line_num}")


def _is_utf_8(row: list[str]) -> bool:
    """Whether the bytes of a row were UTF-8; those that were not are lone surrogates now."""
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_utf_8(where: str, encoding: str = "ENCODING") -> str:
    return (
        f"{where} is not UTF-8; a file of items must be UTF-8, with or without a byte order mark; "
        f"convert it: iconv -f {encoding} -t UTF-8"
    )


def _first_line(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]}, column {error.colno}"
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
