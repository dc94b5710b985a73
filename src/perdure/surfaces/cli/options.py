"""Options that several commands share: the store, JSON, who types, why, and whether they are sure."""

import getpass
import os
import re
import shlex
import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec

from perdure.app import shown_url
from perdure.app.session.opening import is_default_store
from perdure.model.errors import CallerError, ConfigError
from perdure.model.limits import PAGE_ROWS_MAX

STORE_HELP = "URL of the store, as in sqlite:///work.db. Default: PERDURE_STORE, perdure.toml, else perdure.db."


class ShareRange(click.FloatRange):
    """A share from 0 to 1; who writes a percentage is told the share that it is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if share := share_of_percent(value):
            self.fail(f"{value!r} is a percentage; write the share: {share}", param, ctx)
        return super().convert(value, param, ctx)


def share_of_percent(value: object) -> str | None:
    """The share that a percentage is, as it is to be written; None of anything else."""
    found = re.fullmatch(r"\s*(\d{1,3}(\.\d{1,6})?)\s*%\s*", str(value), re.ASCII)
    return f"{float(found[1]) / 100:g}" if found and float(found[1]) <= 100 else None


SHARE = ShareRange(0, 1)  # 0.1 is a tenth

_STORE = "perdure.store"
_PASSWORD = "PASSWORD"  # noqa: S105 - what a person is to replace
# A command within a sentence: up to a comma, a bracket, the word "and" or the end.
_TYPED = re.compile(
    r"perdure (?:captures|db|dead|gates|jobs|queues|runs) [a-z-]+(?: (?!and )[^\s;,()]*[^\s;,().])*"
)
_NEEDS_NONE = re.compile("--(store|help)")

Command = Callable[..., Any]


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options at once, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def app_store_option(command: Command) -> Command:
    """``--store`` of a command that loads an app."""
    return _store_option(command, "URL of the store, for an app that names none.")


def store_option(command: Command) -> Command:
    """``--store``."""
    return _store_option(command, STORE_HELP)


def _store_option(command: Command, words: str) -> Command:
    return click.option("--store", "store", metavar="URL", help=words, callback=_note_store)(
        command
    )


def _note_store(context: click.Context, _: click.Parameter, url: str | None) -> str | None:
    """Let the commands that are printed name the store that was typed, to the end of the command."""
    if url is not None:
        context.meta[_STORE] = url
    return url


def for_app(store: str | None) -> None:
    """Make an app that names no store use the one that was typed, here and in the processes that are started."""
    if store is not None:
        os.environ["PERDURE_STORE"] = store


def check_app_store(reference: str, url: str, store: str | None) -> None:
    """Refuse a store that was typed where the app names another; commands that are printed name the app's."""
    if store is not None:
        from perdure.app import App

        if App(store).url != url:
            raise ConfigError(
                f"{reference} keeps its jobs in {shown_url(url)}, by its own word; leave --store out, "
                "or let the app name no store"
            )
    act_on(url)


def act_on(url: str) -> None:
    """Let the commands that are printed name the store of an app, where that is not the default one."""
    if not is_default_store(url):
        click.get_current_context().meta[_STORE] = url


def command(text: str, *names: object) -> str:
    """A command for a person to type: with its names quoted, and with the store where that is not the default one.

    A password in the store's URL is left out, and a word in its place says what to put there.
    """
    context = click.get_current_context(silent=True)
    url = None if context is None else context.meta.get(_STORE)
    line = text.format(*(shlex.quote(str(name)) for name in names)) if names else text
    if url is None:
        return line
    shown = shown_url(url).replace("***", _PASSWORD)
    return f"{line} --store {shlex.quote(shown)}"


def with_store(text: str) -> str:
    """A text whose commands name the store, as those of `command` do: what the engine says cannot know it."""
    return _TYPED.sub(
        lambda found: found[0] if _NEEDS_NONE.search(found[0]) else command(found[0]), text
    )


def kind_budget(text: str) -> tuple[str, float]:
    """A failure kind and the share of it that is allowed, as typed: KIND=SHARE."""
    kind, _, typed = text.partition("=")
    try:
        share = float(typed)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        told = share_of_percent(typed)
        meant = f"{kind}={told}" if told else "timeout=0.05"
        raise CallerError(
            f"--kind-budget is {text!r}; write KIND=SHARE with a share from 0 to 1, as in {meant}"
        )
    from perdure.app.job_filters import known_kind

    return known_kind(f"--kind-budget {text!r}", kind.strip()), share


def reading_app_option(command: Command) -> Command:
    """``--app`` of a command that only reads."""
    words = "module:variable of the app, which knows more for --json: attempts_max, and second names of fields."
    return click.option("--app", metavar="APP", help=words)(command)


def json_option(command: Command) -> Command:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def limit_option(words: str) -> Callable[[Command], Command]:
    """``--limit``: how many rows a listing has at most."""
    rows = click.IntRange(1, PAGE_ROWS_MAX)
    return click.option("--limit", type=rows, default=50, show_default=True, help=words)


def echo_json(value: object) -> None:
    """Write a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def user() -> str:
    """Who types; a number where the machine knows no name for it, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"


def reason_and_by(*, required: bool = False) -> Callable[[Command], Command]:
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
