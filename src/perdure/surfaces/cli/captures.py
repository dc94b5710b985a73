"""perdure captures: raw output that stages have put aside."""

import sys
from typing import BinaryIO

import click

from perdure.app.job_filters import job_named
from perdure.app.surface.store_session import session_at
from perdure.model.errors import CallerError, UnknownName
from perdure.surfaces.cli.jobs import shown_at
from perdure.surfaces.cli.options import echo_json, json_option, store_option
from perdure.surfaces.cli.root import CommandGroup
from perdure.surfaces.views import all_of, capture_shown


@click.group(cls=CommandGroup)
def captures() -> None:
    """Look at raw output that stages have put aside."""


@captures.command("list")
@click.argument("job_id", metavar="JOB")
@store_option
@json_option
def list_captures(job_id: str, store: str | None, as_json: bool) -> None:
    """List what the attempts of a job, by id, number or key, have put aside, oldest first."""
    with session_at(store) as session:
        found = session.opened.reader.captures(job_named(session.opened.reader, job_id).no)
    if as_json:
        echo_json([all_of(capture_shown(one), one) for one in found])
        return
    for one in found:
        cut = "" if one.bytes_kept == one.bytes_whole else f" of {one.bytes_whole:,}"
        until = "for ever" if one.expires_at is None else f"until {shown_at(one.expires_at)}"
        click.echo(
            f"{one.id}  {one.stage}  token {one.token}  {one.kind}  {one.media_type}  "
            f"{one.bytes_kept:,}{cut} bytes  kept {until}"
        )
    if not found:
        click.echo("no captures")


@captures.command()
@click.argument("capture_id", metavar="ID")
@click.option(
    "-o",
    "--output",
    type=click.File("wb", lazy=True),
    help="Write to this file instead of standard output.",
)
@store_option
def show(capture_id: str, output: BinaryIO | None, store: str | None) -> None:
    """Write one capture as it is, byte for byte."""
    with session_at(store) as session:
        found = session.opened.reader.capture(capture_id, owner=None)
    if found is None:
        raise UnknownName(
            f"no capture {capture_id!r} in this store; see: perdure captures list JOB"
        )
    content = found[1]
    if output is not None:
        output.write(content)
    elif sys.stdout.isatty() and not _is_plain(content):
        raise CallerError(
            f"capture {capture_id} is not plain text and could upset the terminal; "
            "write it to a file: -o FILE"
        )
    else:
        click.echo(content, nl=False)


def _is_plain(content: bytes) -> bool:
    """Whether a terminal shows it and obeys nothing in it."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\n\t" for char in text)
