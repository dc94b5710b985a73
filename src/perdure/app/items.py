"""Items from files: JSON lines and CSV, read one at a time."""

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from perdure.engine.feeding import Unreadable
from perdure.model.errors import CallerError
from perdure.model.limits import PAYLOAD_BYTES_MAX

FORMS = ("jsonl", "csv", "tsv")
_FORMS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
_FIELD_CHARS_MAX = PAYLOAD_BYTES_MAX


def items_of(source: Any, form: str | None = None) -> Iterable[Any]:
    """The items of an iterable; those of a file, if a path is given."""
    if isinstance(source, str | os.PathLike):
        return items_in(Path(source), form)
    try:
        iter(source)
    except TypeError:
        raise CallerError(
            f"items are {type(source).__name__}; pass an iterable, or the path of a .jsonl or .csv file"
        ) from None
    return source  # type: ignore[no-any-return]


def items_in(path: Path, form: str | None = None) -> Iterator[Any]:
    """The items of a file: a JSON value a line, or a CSV row as an object. A line that cannot be read says so."""
    known = form or _FORMS.get(path.suffix.lower())
    if known not in FORMS:
        raise CallerError(
            f"{path}: whether this is JSON lines or CSV cannot be told; "
            "name it .jsonl or .csv, or say the form"
        )
    if path.is_dir():
        raise CallerError(f"{path} is a folder; name a file of items")
    if not path.exists():
        raise CallerError(f"{path}: there is no such file")
    return _read(path, known)


def items_from(file: BinaryIO, name: str, form: str) -> Iterator[Any]:
    """The items of an open file, standard input say; ``form`` is jsonl, csv or tsv."""
    return (
        _json_lines(file, name)
        if form == "jsonl"
        else _rows(file, name, "\t" if form == "tsv" else ",")
    )


def _read(path: Path, form: str) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            yield from items_from(file, path.name, form)
    except OSError as error:
        raise CallerError(f"{path} cannot be read: {error.strerror or error}") from None


def _json_lines(file: BinaryIO, name: str) -> Iterator[Any]:
    for number, line in enumerate(file, start=1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not text.strip():
            continue
        try:
            yield json.loads(text)
        except (ValueError, RecursionError) as error:
            yield Unreadable(f"{name} line {number} is no JSON value ({_short(error)})")


def _rows(file: BinaryIO, name: str, delimiter: str) -> Iterator[Any]:
    csv.field_size_limit(_FIELD_CHARS_MAX)
    with io.TextIOWrapper(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        names = next(reader, None)
        if names is None:
            return
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
            yield dict(zip(names, row, strict=True))


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
