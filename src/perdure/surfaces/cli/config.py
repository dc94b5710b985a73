"""perdure config: the settings in force, and where each comes from."""

import os
from contextlib import closing
from typing import Any

import click

from perdure.app import load_session, settings_file, shown_url
from perdure.app.session.settings import Settings, load_settings
from perdure.surfaces.cli.options import (
    app_store_option,
    check_app_store,
    echo_json,
    for_app,
    json_option,
)
from perdure.surfaces.cli.root import CommandGroup
from perdure.surfaces.cli.tables import shorten, table

_HIDDEN = "***"
_CHARS_MAX = 80


@click.group(cls=CommandGroup)
def config() -> None:
    """Look at the settings in force."""


@config.command()
@click.argument("app", metavar="[APP]", required=False)
@click.option("--origin", "with_origin", is_flag=True, help="Say where each value comes from.")
@app_store_option
@json_option
def show(app: str | None, with_origin: bool, store: str | None, as_json: bool) -> None:
    """Show every setting, its value and its unit; passwords and other secrets are masked.

    With APP (a module, or module:variable) these are the settings of that app: with the values that it finds under
    names of its own, and with settings of its own.
    """
    settings = _settings(app, store)
    file = settings_file(os.environ)
    if as_json:
        echo_json({"file": file, "settings": [_plain(name, settings) for name in settings.table]})
        return
    heads = ("setting", "value", "unit", "origin")
    rows = [
        (name, shorten(str(_shown(name, settings)), _CHARS_MAX), one.unit, settings.origin(name))
        for name, one in settings.table.items()
    ]
    wide = len(heads) if with_origin else len(heads) - 1
    for line in table(heads[:wide], [row[:wide] for row in rows], left=heads):
        click.echo(line)
    if with_origin:
        click.echo("no settings file was read" if file is None else f"settings file: {file}")


def _settings(app: str | None, store: str | None) -> Settings:
    given = {"store": store}
    if app is None:
        return load_settings().with_given(given, given_as="option")
    for_app(store)
    with closing(load_session(app)) as session:
        check_app_store(app, session.url, store)
        return session.settings.with_given(given, given_as="option")


def _plain(name: str, settings: Settings) -> dict[str, Any]:
    origin = settings.settled[name].origin
    return {
        "name": name,
        "value": _shown(name, settings),
        "unit": settings.table[name].unit,
        "secret": settings.table[name].secret,
        "origin": {
            "source": origin.source,
            "name": origin.name,
            "file": origin.file,
            "unit": origin.unit,
            "says": origin.says,
        },
    }


def _shown(name: str, settings: Settings) -> Any:
    """A value as anybody may read it; a word for none."""
    one, value = settings.table[name], settings[name]
    if name == "store":
        return shown_url(value)
    if one.secret:
        return _HIDDEN if value else value
    return (one.none or "none") if value is None else value
