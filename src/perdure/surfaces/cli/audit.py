"""perdure audit: prove the books from the tables alone."""

import sys
from contextlib import closing

import click

from perdure.app import configured, open_store, shown_url
from perdure.surfaces.cli.options import echo_json, json_option, store_option


@click.command()
@store_option
@json_option
def audit(store: str | None, as_json: bool) -> None:
    """Check that every item is accounted for; exit 1 and name what is not."""
    url = configured(store=store).store
    with closing(open_store(url, create=False)) as opened:
        books, findings = opened.reader.books(), opened.reader.audit()
    clean = books.balanced and not findings
    if as_json:
        echo_json({"url": shown_url(url), "clean": clean, "books": books, "findings": findings})
    else:
        click.echo(
            f"accepted {books.accepted} = queued {books.queued} + processing {books.processing} + "
            f"succeeded {books.succeeded} + failed {books.failed} + cancelled {books.cancelled} + "
            f"pruned {books.pruned}" + ("" if books.balanced else "  DOES NOT BALANCE")
        )
        for finding in findings:
            click.echo(f"{finding.check}: {finding.subject} {finding.text}")
        click.echo("clean" if clean else f"{len(findings)} findings")
    sys.exit(0 if clean else 1)
