"""How a run went, in words and as JSON."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from perdure.app.batch.outcome import RunOutcome
from perdure.model.errors import PayloadRefused, PerdureError
from perdure.model.runs import RunStatus, RunView, usd_text
from perdure.model.views import DeadGroup
from perdure.surfaces.cli.options import command
from perdure.surfaces.cli.run_files import Files
from perdure.surfaces.cli.run_panel import is_paused, resume_paused
from perdure.surfaces.cli.tables import shorten, spent_words

_SAME = " < the same items"
_RETRY = "--retry-failed"
_RETRIED = (RunStatus.COMPLETED, RunStatus.PARTIAL_SUCCESS, RunStatus.FAILED)
_WRONG_KEY = re.compile(r"item 1 of the run: (.+ line \d+: )?it has no field ")
_NOT_UTF_8 = re.compile(r" is not UTF-8; .* convert it: ")  # every line of such a file is bad
_CELL = re.compile(
    r"\.[ct]sv line \d+: .*Expected `[^`]*`, got `str`"
)  # the next cell would say the same
_COST = "aborted: the cost"
_KEY_CHARS_MAX = 60
_EXAMPLE_CHARS_MAX = 160


def resume(name: str, files: Files, *, anonymous: bool) -> str:
    """The command that goes on with the run: what was typed, with its name where it got a new one."""
    words = [word for word in sys.argv[1:] if word not in ("--new", _RETRY)]
    if anonymous:
        words += ["--name", name]
    return shlex.join(["perdure", *_once(words)]) + (_SAME if files.items == "-" else "")


def _once(words: list[str]) -> list[str]:
    """A command with each option once: the last one counts; of one that may be repeated, the last for each name."""
    kept: list[str] = []
    seen: set[str | None] = set()
    for option, piece in reversed(list(_pieces(words))):
        name = None if option is None else option.name
        if option is not None and option.multiple:
            value = piece[1] if len(piece) > 1 else piece[0].partition("=")[2]
            name = f"{name} {value.partition('=')[0]}"
        if name is None or name not in seen:
            kept[:0] = piece
        seen.add(name)
    return kept


def _pieces(words: list[str]) -> Iterator[tuple[click.Option | None, list[str]]]:
    """The words of a command, an option with its value in one piece."""
    context = click.get_current_context(silent=True)
    params = () if context is None else context.command.params
    known = {name: one for one in params if isinstance(one, click.Option) for name in one.opts}
    left = list(words)
    while left:
        word = left.pop(0)
        option = known.get(word.partition("=")[0])
        has_value = option is not None and not option.is_flag and "=" not in word
        yield option, [word, left.pop(0)] if has_value and left else [word]


def _with(again: str, *option: str) -> str:
    """The same command with an option, or with another value for it."""
    words = shlex.split(again.removesuffix(_SAME))
    same = _SAME if again.endswith(_SAME) else ""
    return shlex.join(_once([*words, *option])) + same


def ways_on(run: RunView, again: str) -> str:
    """How to go on with a run that was left: the command, and before it what opens the run."""
    first = f"The run is paused; first: {resume_paused(run)}. " if is_paused(run) else ""
    return f"{first}Go on with: {again}"


def error_words(error: PerdureError | None) -> str:
    """What has ended the feeding, and what to do about it."""
    if _WRONG_KEY.match(str(error)):
        return f"{error}; call it again with another --key, or with none"
    remedied = not isinstance(error, PayloadRefused) or _NOT_UTF_8.search(str(error))
    if _CELL.search(str(error)):
        return f"{error}; the cells of a .csv or .tsv are text: annotate the field as str, or give JSON lines"
    return f"{error}" if remedied else f"{error}; mend it, or pass --skip-bad"


def summary_lines(outcome: RunOutcome, files: Files, again: str) -> tuple[list[str], list[str]]:
    """The summary in words, a line each, and what belongs on standard error."""
    complaints = []
    if outcome.refused:
        complaints.append(f"perdure: {outcome.refused}")
    if _WRONG_KEY.match(str(outcome.error)):  # the same command would say the same
        complaints.append(f"perdure: {error_words(outcome.error)}")
    elif outcome.error is not None:
        complaints.append(
            f"perdure: {error_words(outcome.error)}. {outcome.run.counts.total:,} items are in and kept; "
            f"go on with: {again}"
        )
    elif outcome.interrupted:
        complaints.append(f"interrupted; nothing is lost. {ways_on(outcome.run, again)}")
    return list(_summary(outcome, files, again)), complaints


def _summary(outcome: RunOutcome, files: Files, again: str) -> Iterator[str]:
    run, counts, fed = outcome.run, outcome.run.counts, outcome.fed
    status = "interrupted" if outcome.interrupted else run.status.value
    status = status if outcome.error is None else "stopped"
    said = f"{counts.succeeded:,} of {counts.total:,} items succeeded, {counts.failed:,} failed"
    if counts.total == 0 and fed.whole:
        said = f"there are no items in {files.source}"
        said += ", but those that were left out" if fed.skipped else ""
    yield (
        f"run {run.name}: {status} after {outcome.elapsed_s:.1f} s; {said}"
        + (f", {counts.cancelled:,} cancelled" if counts.cancelled else "")
        + (f", {counts.open:,} open" if counts.open else "")
    )
    if run.status is RunStatus.ABORTED:
        yield f"  {run.why}"
    for kind, count in sorted(run.kinds.items(), key=lambda one: (-one[1], one[0])):
        if count:
            yield f"  {count:>7,} {kind}"
    if outcome.most is not None:
        yield f"  {_most_words(outcome.most, outcome.most_key)}"
    if paid := spent_words(counts.cost_nusd, counts.tokens_in, counts.tokens_out):
        yield f"  {paid}"
    if fed.skipped:
        yield f"  left out, because they could not be read: {fed.skipped:,}"
    if outcome.known_before:
        yield f"  {outcome.known_before:,} items were in this run before; --new begins another one"
    if outcome.restarts:
        yield f"  processes of the worker that died, and were started anew: {outcome.restarts:,}"
    if outcome.revived:
        yield f"  {outcome.revived:,} items that had failed before were tried again"
    if fed.repeated:
        one = fed.repeated == 1
        yield (
            f"  {fed.repeated:,} {'item has' if one else 'items have'} the key of an earlier item of "
            f"{files.source} and {'counts' if one else 'count'} once"
        )
    strange = counts.total - (fed.items - fed.skipped - fed.repeated)
    if fed.whole and strange > 0:
        yield f"  {strange:,} items of this run are not in {files.source}: they came with an earlier call"
    if files.results is not None and outcome.is_empty:
        yield f"  results: {files.results} is left as it was"
    elif files.results is not None:
        yield f"  results: {files.results} ({outcome.results:,})"
    if files.failures is not None:
        yield f"  failures: {files.failures} ({outcome.failures:,})"
    yield from _next_steps(outcome, files, again)


def _most_words(group: DeadGroup, key: str | None) -> str:
    """What most have failed of and where, and how to look at one of them."""
    item = "one of them" if key is None else f"one of them, {shorten(key, _KEY_CHARS_MAX)}"
    return (
        f"most alike: {group.count:,} in stage {group.stage}, {group.kind or 'no kind'}: "
        f"{shorten(group.example, _EXAMPLE_CHARS_MAX)}; {item}: "
        f"{command('perdure jobs show {}', group.example_id)}"
    )


def _next_steps(outcome: RunOutcome, files: Files, again: str) -> Iterator[str]:
    run = outcome.run
    if run.counts.failed:
        yield f"  what failed, by cause: {command('perdure dead groups --run {}', run.no)}"
        if run.status in _RETRIED:
            yield f"  when it is mended, try again what has failed: {_with(again, _RETRY)}"
        if files.results is not None and run.status is not RunStatus.ABORTED:
            yield f"  the whole file, when they were driven again: {_whole_file(run, files)}"
    if is_paused(run):
        yield f"  the run is paused{f' ({run.why})' if run.why else ''}: {resume_paused(run)}"
    if run.status is RunStatus.ABORTED:
        either = ""
        if not run.why.startswith(_COST):
            yield f"  go on when it is mended, and try again what has failed: {_with(again, _RETRY)}"
            either = "or "
        if larger := larger_budget(run):
            yield f"  {either}go on with a larger budget: {_with(again, *larger)}"


def _whole_file(run: RunView, files: Files) -> str:
    """The command that writes the files anew, with what was driven again in its place."""
    text, names = "perdure runs results {} --wait --output {}", [str(files.results)]
    if files.failures is not None:
        text, names = f"{text} --failures {{}}", [*names, str(files.failures)]
    return command(text, run.no, *names)


def larger_budget(run: RunView) -> tuple[str, str] | None:
    """The option that would have let it go on; none where its first items have all failed alike."""
    if run.why.startswith(_COST):
        return "--cost-max-usd", "USD"
    if run.why.startswith("aborted: the rate of failures"):
        return "--failure-budget", "SHARE"
    kind = re.match(r"aborted: the rate of (\w+) failures", run.why)
    return None if kind is None else ("--kind-budget", f"{kind[1]}=SHARE")


def plain_outcome(outcome: RunOutcome, files: Files, code: int, again: str) -> dict[str, Any]:
    """The summary as JSON."""
    run, counts, fed = outcome.run, outcome.run.counts, outcome.fed
    return {
        "name": run.name,
        "id": run.id,
        "pipeline": run.pipeline,
        "status": "interrupted" if outcome.interrupted else run.status.value,
        "run_status": run.status.value,
        "why": run.why,
        "exit_code": code,
        "interrupted": outcome.interrupted,
        "error": None if outcome.error is None else str(outcome.error),
        "counts": {
            "total": counts.total,
            "succeeded": counts.succeeded,
            "failed": counts.failed,
            "cancelled": counts.cancelled,
            "open": counts.open,
            "attempts": counts.attempts,
            "retries": counts.retries,
        },
        "retried_failed": outcome.revived,
        "worker_restarts": outcome.restarts,
        "kinds": {kind: count for kind, count in run.kinds.items() if count},
        "fed": {
            "items": fed.items,
            "created": fed.created,
            "known": fed.known,
            "repeated": fed.repeated,
            "skipped": fed.skipped,
            "whole": fed.whole,
        },
        "cost_usd": usd_text(counts.cost_nusd),
        "tokens_in": counts.tokens_in,
        "tokens_out": counts.tokens_out,
        "elapsed_s": round(outcome.elapsed_s, 3),
        "results": _file(files.results, outcome.results),
        "failures": _file(files.failures, outcome.failures),
        "most_failed": outcome.most,
        "resume": again,
    }


def _file(path: Path | None, count: int) -> dict[str, Any] | None:
    return None if path is None else {"path": str(path), "lines": count}
