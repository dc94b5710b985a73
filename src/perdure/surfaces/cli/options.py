"""Options that several commands share: the store, JSON, who types, why, and whether they are sure."""

import getpass
import os
import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec

from perdure.model.errors import CallerError

STORE_HELP = "URL of the store, as in sqlite:///work.db. Default: PERDURE_STORE, else perdure.db."

Command = Callable[..., Any]


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options at once, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def store_option(command: Command) -> Command:
    """``--store``."""
    return click.option("--store", "store", metavar="URL", help=STORE_HELP)(command)


def json_option(command: Command) -> Command:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def echo_json(value: object) -> None:
    """Write a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def user() -> str:
    """Who types; a number where the machine knows no name for it, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"


def said(*, required: bool = False) -> Callable[[Command], Command]:
    """``--reason`` and ``--by``."""

    def decorate(command: Command) -> Command:
        command = click.option(
            "--by",
            "by_whom",
            default=user,
            show_default="your user name",
            help="Who says so.",
        )(command)
        why = "Why; kept in the audit log."
        if required:  # a default beside it, even None, would be taken for an answer
            return click.option("--reason", required=True, help=why)(command)
        return click.option("--reason", default="", help=why)(command)

    return decorate


def yes_option(command: Command) -> Command:
    """``--yes``."""
    return click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can answer.")(
        command
    )


def is_sure(question: str, *, yes: bool) -> bool:
    """Ask on a terminal; elsewhere nothing is done without ``--yes``."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CallerError(
            "this asks before it acts, and nobody is there to answer; say --yes to go on"
        )
    return click.confirm(question, err=True)
