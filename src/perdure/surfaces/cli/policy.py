"""perdure policy: read, check and question policies."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import click

from perdure.app import (
    explain_spec,
    falling_otherwise,
    falling_unlisted,
    load_policy,
    policy_page,
    policy_pages,
)
from perdure.app.surface.policies import Explained
from perdure.surfaces.cli.options import command, echo_json, json_option
from perdure.surfaces.cli.root import CommandGroup


@click.group(cls=CommandGroup)
def policy() -> None:
    """Read, check and question retry policies."""


@policy.command("list")
@json_option
def list_policies(as_json: bool) -> None:
    """List the presets."""
    pages = policy_pages()
    if as_json:
        echo_json([{"name": one.name, "version": one.version} for one in pages])
        return
    for one in pages:
        click.echo(f"{one.name:<15} {one.reason.partition('.')[0]}.")


@policy.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show a policy as TOML that can be edited and used.

    NAME is a preset, a policy file, module:policy, or module:app:stage for the policy that a stage really has.
    """
    page = policy_page(name)
    if as_json:
        echo_json({"reason": page.reason, "implements": page.implements, "policy": page.form})
        return
    for line in _wrap(page.reason):
        click.echo(f"# {line}")
    if page.implements:
        click.echo(f"# Implements {', '.join(page.implements)}; docs/rules.md says what these are.")
    click.echo(page.toml, nl=False)


@policy.command()
@click.argument("file")
@json_option
def check(file: str, as_json: bool) -> None:
    """Check a policy; names the field, the value and what is allowed.

    FILE is a policy file, or what `policy show` takes.

    Lists the failure kinds that no rule speaks about, which the policy answers otherwise; or, where it has a
    `retriable`, those that fail because they are not in it.
    """
    found, _ = load_policy(file)
    action, kinds = falling_otherwise(found)
    unless, unlisted = falling_unlisted(found)
    if as_json:
        answer = {"name": found.name, "version": found.version}
        answer["otherwise"] = {"action": action, "kinds": kinds}
        if found.retriable is not None:
            answer["unlisted"] = {"kinds": unlisted, "unless": unless}
        echo_json(answer)
        return
    click.echo(f"{file}: policy {found.name}, version {found.version}, is valid")
    if kinds:
        click.echo(f"  no rule for these kinds; otherwise = {action}: {', '.join(kinds)}")
    if unlisted:
        words = ", ".join(map(str, unless))
        but = f", unless the status or the exception is one of {words}" if unless else ""
        click.echo(
            f"  no rule and not in retriable, so these kinds fail{but}: {', '.join(unlisted)}"
        )


@policy.command()
@click.argument("name")
@click.option(
    "--error",
    "spec",
    required=True,
    metavar="SPEC",
    help="The failure: http:STATUS, kind:NAME, code:PUBLIC_CODE, exception:NAME, sqlstate:CODE, s3:CODE or lost.",
)
@click.option("--attempt", type=int, default=1, show_default=True, help="The one that failed.")
@click.option("--waits", type=int, default=1, show_default=True, help="Waits, this one included.")
@click.option("--crashes", type=int, default=1, show_default=True, help="Crashes, likewise.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="As answered.")
@click.option("--body", metavar="JSON", help="The body of the answer.")
@click.option("--stage", metavar="STAGE", help="Where; its public code may be another.")
@json_option
def explain(
    name: str,
    spec: str,
    attempt: int,
    waits: int,
    crashes: int,
    headers: tuple[str, ...],
    body: str | None,
    stage: str | None,
    as_json: bool,
) -> None:
    """Say what a policy would do about a failure, and why.

    NAME is a preset, a policy file, module:policy, or module:app:stage for the policy that a stage really has.
    """
    found = explain_spec(
        name,
        spec,
        attempt=attempt,
        waits=waits,
        crashes=crashes,
        headers=headers,
        body=body,
        stage=stage,
    )
    if as_json:
        echo_json(found.answer)
        return
    for line in _explanation(found):
        click.echo(line)


def _explanation(found: Explained) -> Iterator[str]:
    answer = found.answer
    yield answer["why"]
    hold = f", holds its {answer['hold']}" if answer["hold"] else ""
    sort = "" if answer["class"] == answer["kind"] else f" ({answer['class']})"
    yield (
        f"  kind {answer['kind']}{sort}, public code {answer['code']}; "
        f"rule {answer['rule']} of {answer['policy']}/{answer['version']}{hold}"
    )
    waits_for_person = answer["until_person"] and answer["action"] == "retry"
    if answer["until_person"]:
        yield from _gate_lines(found)
    free = "in a stage without an upstream there is no gate; there, "
    yield f"\n  {free * (waits_for_person and not found.gate)}if every attempt failed like this:"
    if waits_for_person and found.gate:
        most = f"{found.waits_max} times at most"
        yield f"    each time until a person releases {found.gate}, not counted, {most}"
    elif found.waits:
        yield from _wait_lines(found)
    else:
        for row in found.schedule:
            yield f"    attempt {row['attempt']} of {row['attempts_max']}: {_outcome(row)}"
    if found.when_weak is not None:
        yield f"\n  {found.when_weak}"


def _gate_lines(found: Explained) -> Iterator[str]:
    """That a gate is held for a person, and what to type."""
    held, what = found.gate or "NAME", found.answer["hold"]
    own = ", or of its upstream where that names no credential," * (what == "credential")
    gate = f"the gate {found.gate}" if found.gate else f"the gate of its {what}{own}"
    yield f"  {gate} is held until a person releases it; behind it nothing is tried"
    look = "" if found.gate else "   (its name: perdure gates list)"
    yield f"  when it is mended: {command('perdure gates release {} --reason …', held)}{look}"


def _wait_lines(found: Explained) -> Iterator[str]:
    """How the waits grow and where they end; those that are alike in one line."""
    waits = list(enumerate(found.waits, 1))
    for outcome, same in groupby(waits, key=lambda one: _outcome(one[1])):
        (first, row), *more = same
        if row["action"] == "fail":
            limit = row["why"].rpartition("; ")[2] if row["failed_reason"] == "exhausted" else ""
            yield f"    then: {outcome}{': ' if limit else ''}{limit}"
            continue
        number = f"waits {first} to {more[-1][0]}" if more else f"wait {first}"
        yield f"    {number} of {found.waits_max}: {outcome}"
    if found.steady and found.answer["hint_s"] is None and not found.answer["until_person"]:
        yield "    behind a gate that admits most other calls, each wait is as long as the first"


def _outcome(row: dict[str, Any]) -> str:
    if row["action"] == "fail":
        return f"fail ({row['failed_reason']})"
    if row["action"] == "hand_over":
        return "hand over to a durable job"
    low, high = row["delay_s"]["min"], row["delay_s"]["max"]
    wait = f"{low:g} s" if low == high else f"{low:g} to {high:g} s"
    return f"retry in {wait}" + ("" if row["counted"] else ", not counted")


def _wrap(text: str) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) > 95:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return [*lines, line] if line else lines
