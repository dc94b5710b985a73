"""perdure gates: what each upstream's gate is doing, and what a person can say to it."""

from collections.abc import Iterator

import click
from msgspec import structs

from perdure.app.surface import gate_control
from perdure.app.surface.gate_control import GateShown
from perdure.app.surface.gate_figures import SliceShown, WorkerPace
from perdure.app.surface.store_session import session_at
from perdure.model.gates import GateState
from perdure.surfaces.cli.options import (
    command,
    echo_json,
    json_option,
    reason_and_by,
    store_option,
    with_store,
)
from perdure.surfaces.cli.root import CommandGroup


@click.group(cls=CommandGroup)
def gates() -> None:
    """Look at the gates of upstreams; hold, probe or release one."""


@gates.command("list")
@store_option
@json_option
def list_gates(store: str | None, as_json: bool) -> None:
    """List all gates: state, why, until when, and how many jobs wait behind."""
    with session_at(store) as session:
        found = gate_control.gates(session.opened)
    if as_json:
        echo_json([gate_control.answer_of(one) for one in found])
        return
    for one in found:
        click.echo(f"{_mark(one)} {one.name:<32}  {one.state.value:<8}  {_behind(one)}  {one.says}")
    if not found:
        click.echo("no gates: no stage names an upstream yet")


@gates.command()
@click.argument("name")
@store_option
@json_option
def show(name: str, store: str | None, as_json: bool) -> None:
    """Show one gate: its latest calls, its pace, the slices of its limits and its last changes."""
    with session_at(store) as session:
        found = gate_control.gate(session.opened, name)
        deeds = gate_control.changes(session.opened, name)
    if as_json:
        echo_json({**structs.asdict(gate_control.answer_of(found)), "changes": deeds})
        return
    click.echo(f"{found.kind} {found.name}: {found.state.value}, {found.says}")
    if found.credential:
        click.echo(f"  behind credential {found.credential}")
    if found.upstreams:
        click.echo(f"  in front of {', '.join(found.upstreams)}")
    click.echo(f"  {_behind(found).strip()} behind it; generation {found.generation}")
    if found.state is not GateState.FLOWING:
        click.echo(f"  to let it flow: {command('perdure gates release {} --reason …', name)}")
        click.echo(f"  to find out now: {command('perdure gates probe {} --reason …', name)}")
    for line in _figures(found):
        click.echo(f"  {line}")
    for deed in deeds:
        moment = deed.done_at.strftime("%Y-%m-%d %H:%M:%S")
        click.echo(f"  {moment}Z  {deed.verb:<16} {deed.by_whom:<12} {deed.reason}")


@gates.command()
@click.argument("name")
@click.option("--for", "for_text", metavar="DURATION", help="As 30m or 2h; else until released.")
@reason_and_by(required=True)
@store_option
def hold(name: str, for_text: str | None, reason: str, by_whom: str, store: str | None) -> None:
    """Hold a gate: its jobs stay queued, and no attempt is spent."""
    with session_at(store) as session:
        step = gate_control.hold(
            session.opened, name, by_whom=by_whom, reason=reason, for_text=for_text
        )
    click.echo(f"{name}: {step.text or 'nothing to change'}")


@gates.command()
@click.argument("name")
@reason_and_by(required=True)
@store_option
def probe(name: str, reason: str, by_whom: str, store: str | None) -> None:
    """Let a worker try one job now, to see whether the upstream is back."""
    with session_at(store) as session:
        step = gate_control.probe(session.opened, name, by_whom=by_whom, reason=reason)
        waiting = gate_control.behind(session.opened, name, flows=False) if step.move else []
    _answer(name, step.text, waiting)


@gates.command()
@click.argument("name")
@reason_and_by(required=True)
@store_option
def release(name: str, reason: str, by_whom: str, store: str | None) -> None:
    """Let a gate flow, whatever held it; calls start slowly."""
    with session_at(store) as session:
        step = gate_control.release(session.opened, name, by_whom=by_whom, reason=reason)
        waiting = gate_control.behind(session.opened, name, flows=True) if step.move else []
    _answer(name, step.text, waiting)


def _answer(name: str, text: str, waiting: list[str]) -> None:
    click.echo(f"{name}: {with_store(text)}")
    for line in waiting:
        click.echo(f"  {with_store(line)}")


def _figures(one: GateShown) -> Iterator[str]:
    """What the latest calls came to, the pace of each worker, and the slices of the limits."""
    told = one.told
    if told.window_says:
        yield f"window: {told.window_says}"
    if len(told.paces) > 1 and told.pace_says:
        yield f"{told.pace_says}, all workers together"
    for paced in told.paces:
        yield f"pace of {_worker(paced)}: {paced.says(one.now)}"
    if told.limits is not None:
        yield f"limits: {told.limits_say}"
    for part in told.slices:
        yield f"slice of {_worker(part)}: {part.says(told.limits, one.now)}"


def _worker(one: WorkerPace | SliceShown) -> str:
    return f"worker {one.worker}" + (f" ({one.name})" if one.name else "")


def _mark(one: GateShown) -> str:
    return {GateState.FLOWING: " ", GateState.PROBING: "?", GateState.HELD: "!"}[one.state]


def _behind(one: GateShown) -> str:
    return f"{one.waiting:>7} waiting"
