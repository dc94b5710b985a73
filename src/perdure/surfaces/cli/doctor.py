"""perdure doctor: what is set up wrong, and what does not move."""

import sys
from contextlib import ExitStack

import click

from perdure.app import load_session
from perdure.app.surface.doctor import Diagnosis, Severity, examine
from perdure.surfaces.cli.options import (
    app_store_option,
    check_app_store,
    command,
    echo_json,
    for_app,
    json_option,
    with_store,
)
from perdure.surfaces.cli.tables import so_many

_INDENT = 6


@click.command()
@click.argument("app", metavar="[APP]", required=False)
@click.option(
    "--host", "serve_host", metavar="HOST", help="The address that `perdure serve` is to listen at."
)
@app_store_option
@json_option
def doctor(app: str | None, serve_host: str | None, store: str | None, as_json: bool) -> None:
    """Look at the settings and the store; exit 1 when something does not work, or loses something.

    With APP (a module, or module:variable) its stages are looked at as well: timeouts, SDK clients that try again by
    themselves, and jobs of stages that it does not have. Nothing is written, and no store is made.
    """
    with ExitStack() as until_it_ends:
        session = None
        if app is not None:
            for_app(store)
            session = load_session(app)
            until_it_ends.callback(session.close)
            check_app_store(app, session.url, store)
        found = examine(session, store=store, serve_host=serve_host)
    failed = sum(one.severity is Severity.FAIL for one in found)
    warned = sum(one.severity is Severity.WARN for one in found)
    if as_json:
        echo_json({"healthy": not failed, "failed": failed, "warned": warned, "checks": found})
    else:
        for one in found:
            click.echo(_line(one))
        if app is None:
            more = command("perdure doctor MODULE:APP")
            click.echo(f"the stages of an app are looked at when it is named: {more}")
        click.echo(f"{so_many(len(found), 'check')}, {warned} to look at, {failed} failed")
    sys.exit(1 if failed else 0)


def _line(one: Diagnosis) -> str:
    head = f"{one.severity.value:<{_INDENT}}{one.check.replace('_', ' ')}: {with_store(one.text)}"
    return f"{head}\n{'':{_INDENT}}-> {with_store(one.remedy)}" if one.remedy else head
