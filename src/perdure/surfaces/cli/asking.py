"""Who types, why, and whether they are sure."""

import getpass
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from perdure.model.errors import CallerError

Command = TypeVar("Command", bound=Callable[..., Any])


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
            "--by", "by_whom", default=user, show_default="your user name", help="Who says so.",
        )(command)  # fmt: skip
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
