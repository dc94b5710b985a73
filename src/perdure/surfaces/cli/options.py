"""Options that several commands share."""

from collections.abc import Callable
from typing import Any

import click
import msgspec

STORE_HELP = "URL of the store, as in sqlite:///work.db. Default: PERDURE_STORE, else perdure.db."

Command = Callable[..., Any]


def store_option(command: Command) -> Command:
    """``--store``."""
    return click.option("--store", "store", metavar="URL", help=STORE_HELP)(command)


def json_option(command: Command) -> Command:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def echo_json(value: object) -> None:
    """Write a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
