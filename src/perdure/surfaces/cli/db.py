"""perdure db: the schema of a store."""

from contextlib import closing

import click

from perdure.app import schema_of, settings_in_force, shown_url
from perdure.surfaces.cli.options import command, echo_json, json_option, store_option
from perdure.surfaces.cli.root import CommandGroup


@click.group(cls=CommandGroup)
def db() -> None:
    """Look after the store's schema."""


@db.command()
@store_option
@json_option
def status(store: str | None, as_json: bool) -> None:
    """Say where the schema stands."""
    with closing(schema_of(settings_in_force(store=store).store, create=False)) as schema:
        found = schema.status()
    if as_json:
        echo_json(found)
        return
    if not found.present:
        owner = "" if found.url.startswith("sqlite") else "as the role that is to own its tables, "
        click.echo(f"{found.url}: no schema yet; {owner}run: {command('perdure db upgrade')}")
        return
    owner = "" if found.url.startswith("sqlite") else "as the role that owns its tables, "
    upgrade = f"{owner}run: {command('perdure db upgrade')}"
    state = f"pending: {', '.join(found.pending)}; {upgrade}" if found.pending else "up to date"
    if found.version > found.known_version:
        state = "newer than this version of Perdure knows"
    click.echo(f"{found.url}: schema {found.version} of {found.known_version}, {state}")


@db.command()
@store_option
@json_option
def upgrade(store: str | None, as_json: bool) -> None:
    """Bring the schema up to date; safe to run again."""
    url = settings_in_force(store=store).store
    with closing(schema_of(url)) as schema:
        done = schema.upgrade()
    url = shown_url(url)
    if as_json:
        echo_json({"url": url, "applied": done})
    elif done:
        click.echo(f"{url}: applied {', '.join(done)}")
    else:
        click.echo(f"{url}: nothing to do")
