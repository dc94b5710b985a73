"""perdure audit: prove the books from the tables alone."""

import sys

import click

from perdure.app import settings_in_force, shown_url
from perdure.app.surface.store_session import checks_of, run_at, session_at, tables_of
from perdure.model.runs import RunView
from perdure.model.views import Books, Finding
from perdure.surfaces.cli.options import echo_json, json_option, store_option
from perdure.surfaces.cli.tables import so_many


@click.command()
@click.option(
    "--run", "named", metavar="RUN", help="Only this run and its jobs: id, number or name."
)
@store_option
@json_option
def audit(named: str | None, store: str | None, as_json: bool) -> None:
    """Check that every item is accounted for; exit 1 and name what is not.

    Every statement looks at whole tables: states, attempts and their limits, spacing, checkpoints, keys, captures,
    counts and spending of runs, re-drives, and that what came in is what is there.
    """
    url = settings_in_force(store=store).store
    with session_at(store) as session:
        reader = session.opened.reader
        run = None if named is None else run_at(session, named).view()
        books = reader.books()
        findings = reader.audit(run=None if run is None else run.no)
    clean = not findings and (books.balanced or run is not None)
    if as_json:
        echo_json(
            {
                "url": shown_url(url),
                "clean": clean,
                "run": run,
                "books": books,
                "checks": checks_of(url),
                "tables": tables_of(url),
                "findings": findings,
            }
        )
    else:
        click.echo(_of_store(books) if run is None else _of_run(run))
        _tell(findings)
        click.echo(_scope(url, books, run))
        click.echo("clean" if clean else so_many(len(findings), "finding"))
    sys.exit(0 if clean else 1)


def _of_store(books: Books) -> str:
    return (
        f"accepted {books.accepted} = queued {books.queued} + processing {books.processing} + "
        f"succeeded {books.succeeded} + failed {books.failed} + cancelled {books.cancelled} + "
        f"pruned {books.pruned}" + ("" if books.balanced else "  DOES NOT BALANCE")
    )


def _of_run(run: RunView) -> str:
    counts = run.counts
    return (
        f"run {run.name} (number {run.no}), {run.status.value}: total {counts.total} = succeeded "
        f"{counts.succeeded} + failed {counts.failed} + cancelled {counts.cancelled} + open {counts.open}"
    )


def _tell(findings: list[Finding]) -> None:
    for finding in findings:
        click.echo(f"{finding.check}: {finding.subject} {finding.text}")


def _scope(url: str, books: Books, run: RunView | None) -> str:
    jobs = books.accounted - books.pruned
    what = so_many(jobs, "job") if run is None else f"run {run.name}, among {so_many(jobs, 'job')}"
    checks, tables = len(checks_of(url)), len(tables_of(url))
    return f"{checks} checks over {tables} tables, of {what} in store {shown_url(url)}"
