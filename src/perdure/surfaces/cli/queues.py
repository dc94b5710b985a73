"""perdure queues: what waits in each, and how to pause and resume one."""

import click

from perdure.app.surface import queue_control
from perdure.app.surface.store_session import session_at
from perdure.model.operations import Deed
from perdure.surfaces.cli.options import (
    command,
    echo_json,
    json_option,
    reason_and_by,
    store_option,
)
from perdure.surfaces.cli.root import CommandGroup
from perdure.surfaces.cli.tables import shorten, table

_PIPELINES_CHARS_MAX = 60


@click.group(cls=CommandGroup)
def queues() -> None:
    """Look at queues; pause or resume one."""


@queues.command("list")
@store_option
@json_option
def list_queues(store: str | None, as_json: bool) -> None:
    """List all queues: what is ready, what waits for later, and whether the queue is paused."""
    with session_at(store) as session:
        found = queue_control.queues(session.opened)
    if as_json:
        echo_json([queue_control.answer_of(one) for one in found])
        return
    if not found:
        click.echo("no queues: no pipeline has taken an item yet")
        return
    heads = ("queue", "ready", "later", "pipelines", "state")
    rows = [
        (
            one.name,
            f"{one.ready:,}",
            f"{one.later:,}",
            shorten(", ".join(one.pipelines), _PIPELINES_CHARS_MAX),
            one.says,
        )
        for one in found
    ]
    for line in table(heads, rows, left=("queue", "pipelines", "state")):
        click.echo(line)


@queues.command()
@click.argument("name", metavar="QUEUE")
@reason_and_by()
@store_option
def pause(name: str, reason: str, by_whom: str, store: str | None) -> None:
    """Claim no job of a queue until it is resumed; attempts under way end, and items are still taken in."""
    with session_at(store) as session:
        done = queue_control.pause(session.opened, name, Deed(by_whom, reason))
    click.echo(f"{name}: paused" if done else f"{name}: it was paused already")
    click.echo(f"  to go on: {command('perdure queues resume {}', name)}")


@queues.command()
@click.argument("name", metavar="QUEUE")
@reason_and_by()
@store_option
def resume(name: str, reason: str, by_whom: str, store: str | None) -> None:
    """Let the jobs of a paused queue be claimed again."""
    with session_at(store) as session:
        done = queue_control.resume(session.opened, name, Deed(by_whom, reason))
    click.echo(f"{name}: open" if done else f"{name}: it was not paused")
