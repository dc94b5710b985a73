"""perdure run: a batch of items through a pipeline, from a file to a file."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
import msgspec

from perdure.app import Pipeline, load_pipeline
from perdure.app.batch.carry_out import RunRequest, carry_out, with_first_checked
from perdure.app.batch.outcome import LeftAtOnce, RunOutcome
from perdure.app.files.items import FORMS, items_from, items_in, lively
from perdure.model.errors import CallerError, PayloadRefused
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.nouns import replace
from perdure.model.runs import RunStatus
from perdure.surfaces.cli.live_panel import screen
from perdure.surfaces.cli.options import (
    SHARE,
    app_store_option,
    check_app_store,
    echo_json,
    for_app,
    json_option,
    kind_budget,
    with_options,
)
from perdure.surfaces.cli.run_files import Files, checked_files, lines_about_other_runs
from perdure.surfaces.cli.run_panel import lines, panel
from perdure.surfaces.cli.run_summary import (
    error_words,
    plain_outcome,
    resume,
    summary_lines,
    ways_on,
)
from perdure.surfaces.cli.worker import description

_WORKER = (sys.executable, "-m", "perdure.surfaces.cli", "worker")
_BAD_SHOWN = 5

INTERRUPTED = 130
_CODES = {
    RunStatus.COMPLETED: 0,
    RunStatus.PARTIAL_SUCCESS: 3,
    RunStatus.FAILED: 4,
    RunStatus.ABORTED: 5,
    RunStatus.CANCELLED: 6,
}

_OPTIONS = (
    click.option(
        "-o",
        "--results",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the values there, a JSON object a line.",
    ),
    click.option(
        "--failures",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the items without a value there, and why.",
    ),
    click.option(
        "--format",
        "form",
        type=click.Choice(["jsonl", "csv", "tsv"]),
        help="What ITEMS are. Default: as the file's name ends; JSON lines on standard input.",
    ),
    click.option(
        "--key",
        metavar="FIELD",
        help="The field that names an item; the same for all calls of a run. Default: its place and content do.",
    ),
    click.option(
        "--name",
        help="The run's name; the same name goes on with it. Default: the name of the file.",
    ),
    click.option(
        "--new",
        is_flag=True,
        help="Begin another run instead of going on with the one of this name.",
    ),
    click.option(
        "--retry-failed",
        is_flag=True,
        help="Try what has failed in this run again, before going on with it.",
    ),
    click.option("--owner", default="", help="Whose items these are."),
    click.option(
        "--failure-budget",
        type=SHARE,
        metavar="SHARE",
        help="Abort when more of the processed items have failed. Default: 0.1.",
    ),
    click.option(
        "--kind-budget",
        "kind_budgets",
        multiple=True,
        metavar="KIND=SHARE",
        help="A budget for one failure kind; may be given several times.",
    ),
    click.option(
        "--no-count-rate-limits",
        is_flag=True,
        help="Leave items that rate limits ended out of the budget.",
    ),
    click.option(
        "--sample-min",
        type=int,
        metavar="ITEMS",
        help="How many must have ended before it is looked at. Default: 100.",
    ),
    click.option(
        "--check-every",
        type=int,
        metavar="ITEMS",
        help="How often the budget is looked at after that. Default: 1000.",
    ),
    click.option(
        "--completed-at",
        type=SHARE,
        metavar="SHARE",
        help="Share of success from which the run is completed. Default: 0.95.",
    ),
    click.option(
        "--partial-at",
        type=SHARE,
        metavar="SHARE",
        help="Share of success from which it is a partial success. Default: 0.5.",
    ),
    click.option(
        "--cost-max-usd",
        type=click.FloatRange(min=0),
        metavar="USD",
        help="Abort when the stages report more cost than that.",
    ),
    click.option(
        "--concurrency",
        type=int,
        metavar="JOBS",
        help="Jobs in flight at once in this command's worker.",
    ),
    click.option(
        "--backlog",
        type=click.IntRange(min=1),
        metavar="ITEMS",
        help="Open items beyond which feeding waits. Default: 100000.",
    ),
    click.option(
        "--as-completed",
        is_flag=True,
        help="Write results as they end, not in the order of the items.",
    ),
    click.option(
        "--skip-bad",
        is_flag=True,
        help="Leave out lines that cannot be read, instead of stopping there.",
    ),
    click.option("--no-work", is_flag=True, help="Only feed and watch; workers run elsewhere."),
    app_store_option,
)


@click.command()
@click.argument("target", metavar="PIPELINE")
@click.argument("items", metavar="ITEMS")
@json_option
@with_options(*_OPTIONS)
def run(target: str, items: str, **chosen: Any) -> None:
    """Run a file of ITEMS through a pipeline: feed, work, watch, and write the results.

    PIPELINE is a module, or module:variable: a pipeline or an app that has only one; or module:app:name with the
    name that the pipeline was declared with. ITEMS is a file of JSON lines or CSV, or - for standard
    input.

    The same command goes on with the same run: what was done is not done again. A worker is
    started for the time of the command; it serves the pipeline's queue, and others may help.

    Ctrl-C stops feeding, lets running stages finish, writes what there is and says how to go on; a
    second Ctrl-C leaves at once. Nothing is lost either way. The exit status is 0 when the run is
    completed, 3 for a partial success, 4 when it failed, 5 when a budget aborted it, 6 when it was
    cancelled, 130 when it was interrupted; 2 when a line or an option is wrong, or every line was left out.
    """
    files = checked_files(items, chosen["results"], chosen["failures"])
    for_app(chosen["store"])
    reference, session, pipe = load_pipeline(target)
    with (
        _stop_requests() as asked,
        closing(session),
    ):  # to the last word: a summary is not interrupted
        check_app_store(reference, session.url, chosen["store"])
        _carry_out(pipe, reference, files, chosen, asked)


def _carry_out(
    pipe: Pipeline, reference: str, files: Files, chosen: dict[str, Any], asked: Callable[[], int]
) -> NoReturn:
    as_json = chosen["as_json"]
    bad = _Bad(lambda line: click.echo(line, err=True))
    named = _name(files.items, chosen)
    name = named
    if chosen["new"]:
        name = named or pipe._session.ids.next()
    order = RunRequest(
        items=_items(files.items, chosen["form"]),
        name=name,
        owner=chosen["owner"],
        key=chosen["key"],
        options=_settings(files.items, chosen),
        bad=bad if chosen["skip_bad"] else None,
        results=files.results,
        failures=files.failures,
        retry_failed=chosen["retry_failed"],
        order="ended" if chosen["as_completed"] else "items",
        grace_s=pipe._session.settings["grace_s"],
        worker=None if chosen["no_work"] else _worker(reference, pipe, chosen["concurrency"]),
        knows=lambda elsewhere: description(pipe._session, elsewhere),
        **({} if chosen["backlog"] is None else {"backlog_max": chosen["backlog"]}),
    )
    if named is None and (
        files.items == "-" or Path(files.items).is_file()
    ):  # a pipe may be silent
        order = _checked(pipe, order)
    if chosen["new"]:
        _tell_new(pipe, files, name or "", chosen["owner"])
    ours = (pipe.name, chosen["owner"], name)
    for line in lines_about_other_runs(files, pipe._session, goes_on=ours):
        click.echo(line, err=True)
    try:
        with screen(panel, None if as_json else lines, err=as_json) as (show, hear, on_terminal):
            heard = replace(order, aside=on_terminal, hear=hear)
            outcome = carry_out(pipe, heard, show, asked)
    except LeftAtOnce as left:
        outcome = left.outcome
        again = resume(outcome.run.name, files, anonymous=named is None)
        if as_json:
            echo_json(
                plain_outcome(
                    outcome, replace(files, results=None, failures=None), INTERRUPTED, again
                )
            )
        click.echo(f"left at once; nothing is lost. {ways_on(outcome.run, again)}", err=True)
        sys.exit(INTERRUPTED)
    code = exit_code(outcome)
    again = resume(outcome.run.name, files, anonymous=named is None)
    if as_json:
        echo_json(plain_outcome(outcome, files, code, again))
    summary, complaints = summary_lines(outcome, files, again)
    for line in summary if not as_json else ():
        click.echo(line)
    for line in complaints:
        click.echo(line, err=True)
    sys.exit(code)


def _checked(pipe: Pipeline, order: RunRequest) -> RunRequest:
    try:
        return with_first_checked(pipe, order)
    except PayloadRefused as refused:
        raise PayloadRefused(error_words(refused)) from None


def _tell_new(pipe: Pipeline, files: Files, name: str, owner: str) -> None:
    """Which run begins, before anything can end us, and which ones of the same file are not over: they are paid for in part."""
    reader, source = pipe._session.opened.reader, _source(files.items)
    live = reader.runs(pipeline=pipe.name, owner=owner, live=True, limit=PAGE_ROWS_MAX)
    for one in live if source is not None else ():
        if msgspec.json.decode(one.settings_json).get("source") == source:
            again = resume(one.name, files, anonymous=True)
            click.echo(
                f"run {one.name} of this file is not over; to go on with it: {again}", err=True
            )
    again = resume(name, files, anonymous=True)
    click.echo(f"another run begins, {name}; to go on with it: {again}", err=True)


# -- what was asked for ------------------------------------------------------------------


def _items(items: str, form: str | None) -> Iterator[Any]:
    if items != "-":
        return items_in(Path(items), form)
    # A file of its own: a thread that is left reading sys.stdin would keep us from ending.
    file = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115 - open until we end
    return lively(items_from(file, "standard input", form or FORMS[0]))


def _name(items: str, chosen: dict[str, Any]) -> str | None:
    name: str | None = chosen["name"]
    if name is not None and chosen["new"]:
        raise CallerError("--name goes on with a run and --new begins another; give one of them")
    if name is None and items != "-" and not chosen["new"]:
        return Path(items).name
    return name


def _settings(items: str, chosen: dict[str, Any]) -> dict[str, Any]:
    names = (
        "failure_budget",
        "check_every",
        "sample_min",
        "completed_at",
        "partial_at",
        "cost_max_usd",
    )
    found = {name: chosen[name] for name in names if chosen[name] is not None}
    found["key"] = chosen["key"] or ""
    if chosen["kind_budgets"]:
        found["kinds"] = dict(kind_budget(text) for text in chosen["kind_budgets"])
    if chosen["no_count_rate_limits"]:
        found["rate_limits"] = False
    if chosen["name"] is None and items != "-":
        found["source"] = _source(items)  # of the same name elsewhere is another one
    return found


def _source(items: str) -> str | None:
    return None if items == "-" else str(Path(items).absolute())


def _worker(reference: str, pipe: Pipeline, concurrency: int | None) -> list[str]:
    settings = pipe._session.settings.with_given({"concurrency": concurrency}, given_as="option")
    # The panel tells what a log would, unless somebody asks for more.
    level = "ERROR" if settings.origin("log_level") == "default" else settings["log_level"]
    lanes = ["--queue", pipe.queue, "--category", pipe.category]
    tuning = ["--concurrency", str(settings["concurrency"]), "--log-level", level]
    if settings.origin("log_format") == "default":  # its lines stand among ours, which are text
        tuning += ["--log-format", "text"]
    return [*_WORKER, reference, *lanes, *tuning]


class _Bad:
    """Hears of lines that cannot be read, and repeats the first few."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._count = 0

    def __call__(self, position: int, refused: PayloadRefused) -> None:
        self._count += 1
        if self._count <= _BAD_SHOWN:
            self._echo(f"left out: item {position + 1}: {refused}")
        elif self._count == _BAD_SHOWN + 1:
            self._echo("left out: and more, which the summary counts")


# -- while it runs -----------------------------------------------------------------------


@contextmanager
def _stop_requests() -> Iterator[Callable[[], int]]:
    """How often Ctrl-C or SIGTERM was meant for us; nothing else happens in the moment of the first two.

    The third one ends us wherever we are: nobody may read what we write, or the store may be silent.
    """
    times = 0

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal times
        times += 1
        if times > 2:
            raise KeyboardInterrupt

    before = {one: signal.signal(one, count) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: times
    finally:
        for one, old in before.items():
            signal.signal(one, old)


def exit_code(outcome: RunOutcome) -> int:
    """The exit status that says how it went."""
    if outcome.error is not None:
        return outcome.error.exit_code
    if outcome.interrupted:
        return INTERRUPTED
    if outcome.fed.skipped and not outcome.run.counts.total:
        return CallerError.exit_code  # every line was left out
    return _CODES.get(outcome.run.status, 1)
