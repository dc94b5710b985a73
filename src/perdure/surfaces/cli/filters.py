"""The options that say which jobs are meant."""

from collections.abc import Mapping
from typing import Any

import click

from perdure.surfaces.cli.options import Command, with_options

_FILTERS = (
    click.option("--pipeline", help="Only of this pipeline."),
    click.option("--stage", help="Only those that failed at this stage."),
    click.option("--run", metavar="RUN", help="Only of this run: its id, number or name."),
    click.option("--kind", help="Only of this failure kind, as in network."),
    click.option("--code", help="Only with this public error code."),
    click.option("--fingerprint", help="Only of this group; see: perdure dead groups."),
    click.option(
        "--key", help="Only with this key: of --owner, else of the run's owner, else of none."
    ),
    click.option("--owner", help="Only of this owner."),
    click.option("--older-than", metavar="AGE", help="Only failed longer ago, as in 2h or 3d."),
    click.option("--newer-than", metavar="AGE", help="Only failed since, as in 30m."),
    click.option("--text", help="Only where the error's message or detail has this text."),
    click.option("--discarded", is_flag=True, default=None, help="The discarded ones instead."),
)


_OPEN = (
    click.option("--pipeline", help="Only of this pipeline."),
    click.option("--stage", help="Only those at this stage."),
    click.option("--queue", help="Only of this queue."),
    click.option("--run", metavar="RUN", help="Only of this run: its id, number or name."),
    click.option("--kind", help="Only whose last failure was of this kind, as in network."),
    click.option("--code", help="Only whose last failure had this public error code."),
    click.option("--owner", help="Only of this owner."),
    click.option("--older-than", metavar="AGE", help="Only enqueued longer ago, as in 2h or 3d."),
    click.option("--newer-than", metavar="AGE", help="Only enqueued since, as in 30m."),
    click.option("--text", help="Only whose last failure's message has this text."),
)


def filter_options(command: Command) -> Command:
    """All filters of dead letters; what was given comes as keyword arguments, the rest as None."""
    return with_options(*_FILTERS)(command)


def open_filtered(command: Command) -> Command:
    """All filters of open jobs, as in `filter_options`."""
    return with_options(*_OPEN)(command)


def in_words(chosen: Mapping[str, Any]) -> str:
    """A filter behind a noun: " with pipeline 'p', kind 'network'"; empty for none."""
    words = chosen_words(chosen)
    return f" with {words}" if words else ""


def chosen_words(chosen: Mapping[str, Any]) -> str:
    """What was asked for, in words."""
    return ", ".join(
        name.replace("_", " ") if value is True else f"{name.replace('_', ' ')} {value!r}"
        for name, value in chosen.items()
        if value is not None
    )
