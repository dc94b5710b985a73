"""The files of ``perdure run``: where items come from, where results go, and whose were there before."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from perdure.app.session.session import Session
from perdure.model.errors import CallerError
from perdure.model.runs import RunView
from perdure.surfaces.cli.options import command

_LINE_BYTES_MAX = 10_000_000


class _ResultLine(Struct):
    """What is read of a line of results: whose it is."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Files:
    """Where items come from, and where results go."""

    items: str
    results: Path | None
    failures: Path | None

    @property
    def source(self) -> str:
        """Where items come from, in words."""
        return "standard input" if self.items == "-" else self.items

    @property
    def written(self) -> list[Path]:
        """The files that are written anew."""
        return [path for path in (self.results, self.failures) if path is not None]


def checked_files(items: str, results: Path | None, failures: Path | None) -> Files:
    """The files that were named; a folder, or one file for two things, is refused."""
    files = Files(items, results, failures)
    written = files.written
    for path in written:
        if path.name == "-":
            raise CallerError("results go to a file; - is no file to write to")
        if path.is_dir():
            raise CallerError(f"{path} is a folder; name a file in it for what is to be written")
    named = written if items == "-" else [*written, Path(items)]
    places = [Path(os.path.realpath(path)) for path in named if path.is_file() or not path.exists()]
    for place in places:
        if places.count(place) > 1:
            raise CallerError(
                f"{place.name} is named twice; items and results need files of their own"
            )
    return files


def lines_about_other_runs(
    files: Files, session: Session, *, goes_on: tuple[str, str, str | None]
) -> Iterator[str]:
    """Which files have the results of another run, and how these are written again; ``goes_on`` is pipeline, owner and name of ours."""
    for path in files.written:
        other = _run_in(path, session)
        if other is not None and (other.pipeline, other.owner, other.name) != goes_on:
            again = command("perdure runs results {} --output FILE", other.no)
            yield (
                f"{path} had the results of run {other.name} (number {other.no}) and gets those of this one; "
                f"to write the others again: {again}"
            )


def _run_in(path: Path, session: Session) -> RunView | None:
    """The run whose results are in a file; None for what is no such file, or of another store."""
    if not path.is_file():  # a pipe would wait for its writer
        return None
    try:
        with path.open("rb") as file:
            told = msgspec.json.decode(file.readline(_LINE_BYTES_MAX), type=_ResultLine)
    except (OSError, msgspec.DecodeError):
        return None
    reader = session.opened.reader
    job = reader.job(told.job_id)
    found = reader.runs(no=job.run) if job is not None and job.run is not None else []
    return found[0] if found else None
