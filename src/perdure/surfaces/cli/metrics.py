"""perdure metrics: what Prometheus reads of a store, and the rules for alerts that come with us."""

import click

from perdure.app.session.metrics import (
    alert_rules,
    check_metrics_extra,
    metrics_text,
    store_samples,
)
from perdure.app.surface.store_session import session_at
from perdure.surfaces.cli.options import echo_json, json_option, store_option
from perdure.surfaces.cli.root import CommandGroup


@click.group(cls=CommandGroup)
def metrics() -> None:
    """Show the metrics of a store, and the rules for alerts."""


@metrics.command("show")
@store_option
@json_option
def show_metrics(store: str | None, as_json: bool) -> None:
    """Show the metrics of a store as Prometheus reads them.

    Those of working processes are at `perdure worker --metrics-port` and at /metrics of `perdure serve`.
    """
    check_metrics_extra("perdure metrics show")
    with session_at(store) as session:
        found = session.opened.reader.figures()
    if as_json:
        echo_json(store_samples(found))
    else:
        click.echo(metrics_text(found, {}).decode(), nl=False)


@metrics.command("alerts")
def show_alerts() -> None:
    """Print the rules for Prometheus, for a file of your own: perdure metrics alerts > perdure.rules.yml."""
    click.echo(alert_rules(), nl=False)
