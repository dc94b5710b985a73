"""perdure schedules: what is enqueued again and again, and when next."""

import click

from perdure.app.surface.store_session import session_at
from perdure.surfaces.cli.options import echo_json, json_option, store_option
from perdure.surfaces.cli.root import CommandGroup
from perdure.surfaces.cli.tables import day_at, shorten, table
from perdure.surfaces.views import all_of, schedule_shown

_ITEM_CHARS_MAX = 60
_TICK_S_MAX = 5.0  # a worker that is there has ticked by then


@click.group(cls=CommandGroup)
def schedules() -> None:
    """Look at what is enqueued again and again."""


@schedules.command("list")
@store_option
@json_option
def list_schedules(store: str | None, as_json: bool) -> None:
    """List schedules by their next moment: rule, last tick, how many there were, and the item.

    A schedule is in the store when a worker of the app that declares it has started. One that is overdue has no
    running worker that declares it.
    """
    with session_at(store) as session:
        found = session.opened.reader.schedules()
        now = session.opened.reader.now()
    if as_json:
        echo_json([all_of(schedule_shown(one), one) for one in found])
        return
    if not found:
        click.echo("no schedules: declare one with app.every, and start a worker")
        return
    heads = ("schedule", "pipeline", "rule", "next", "last", "ticks", "item")
    rows = [
        (
            one.name,
            one.pipeline,
            one.spec,
            day_at(one.next_at)
            + (" overdue" if (now - one.next_at).total_seconds() > _TICK_S_MAX else ""),
            day_at(one.ticked_at) or "never",
            f"{one.ticks:,}",
            shorten(one.payload_json, _ITEM_CHARS_MAX),
        )
        for one in found
    ]
    for line in table(heads, rows, left=[one for one in heads if one != "ticks"]):
        click.echo(line)
