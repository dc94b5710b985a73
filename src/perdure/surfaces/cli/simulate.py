"""perdure simulate: what would happen, by the same rules, in simulated time."""

import os
from collections.abc import Iterator
from pathlib import Path

import click

from perdure.app import load_policy
from perdure.model.errors import CallerError
from perdure.simulate import (
    SCENARIOS,
    Scenario,
    SimulationQuestion,
    draw,
    form,
    require_matplotlib,
    row,
    scenario_of,
    scenarios_named,
    strategy,
    summary_lines,
    text_lines,
)
from perdure.surfaces.cli.options import echo_json, json_option

_DRAWN = ("gate", "no-gate", "expo-full")
_EXAMPLES = """\b
Examples:
  perdure simulate --scenario W2 --no-rivals
  perdure simulate --policy my.toml --outage 45m --jobs 10000 --rate 20/s
  perdure simulate --scenario W5 --seeds 20 --plots pictures --json
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--scenario",
    "names",
    multiple=True,
    metavar="NAME",
    help="W1 to W16, W3b, W3c and W5b; W2, W6 and W13 have several forms. Default: all of them.",
)
@click.option(
    "--policy",
    "policy_name",
    default="standard",
    show_default=True,
    metavar="NAME|FILE",
    help="A preset, or a policy file in TOML or JSON.",
)
@click.option(
    "--outage", metavar="TIME", help="Your own case: down for so long at first, as in 45m."
)
@click.option("--jobs", type=int, help="Your own case: how many jobs wait. Default 2000.")
@click.option(
    "--rate",
    metavar="RATE",
    help="Your own case: the upstream's limit, as in 20/s, 500/min or none.",
)
@click.option(
    "--latency", metavar="TIME", help="Your own case: how long an answer takes. Default 1s."
)
@click.option("--workers", type=int, help="Your own case: how many workers. Default 4.")
@click.option("--concurrency", type=int, help="Your own case: jobs in flight in each. Default 25.")
@click.option(
    "--no-hints", is_flag=True, help="Your own case: a 429 does not say how long to wait."
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1_000),
    default=5,
    show_default=True,
    help="How many seeds the gates and the bound are played with.",
)
@click.option("--no-rivals", is_flag=True, help="Leave out the strategies of others.")
@click.option(
    "--plots",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write a picture of each scenario there, as PNG and SVG; needs perdure[sim].",
)
@json_option
def simulate(
    names: tuple[str, ...],
    policy_name: str,
    outage: str | None,
    jobs: int | None,
    rate: str | None,
    latency: str | None,
    workers: int | None,
    concurrency: int | None,
    no_hints: bool,
    seeds: int,
    no_rivals: bool,
    plots: Path | None,
    as_json: bool,
) -> None:
    """Simulate a policy and its gates against upstreams in trouble.

    Without options, all scenarios are played: outages, bursts over a limit, random refusals, partial
    failure, brown-out, an empty account, bugs of one's own and others. Each is compared with what others do and with a bound
    that no scheduler can beat. Time is simulated, chances are drawn from seeds, and the decisions are
    those of the engine's own rules: the same seeds give the same table. All of it takes about three
    minutes.
    """
    own = _own_case(outage, jobs, rate, latency, workers, concurrency, no_hints)
    policy, _ = load_policy(policy_name)
    if plots is not None:
        require_matplotlib()
    wanted = _scenarios(names, own)
    if plots is not None:
        _make_directory(plots)
    rows = []
    for scenario in wanted:
        found = row(scenario, policy, seeds=seeds, rivals=not no_rivals)
        rows.append(found)
        if not as_json:
            click.echo("\n".join(text_lines(found)) + "\n")
        if plots is not None:
            scene = scenario.scene(1)
            plays = [strategy(name, policy) for name in _DRAWN]
            books = [(one.title, one.play(scene, 1)) for one in plays]
            for path in draw(scene, books, plots, forms=("png", "svg")):
                click.echo(f"  wrote {path}", err=as_json)
    if as_json:
        echo_json([form(one) for one in rows])
    elif len(rows) > 1:
        click.echo("\n".join(summary_lines(rows)))


def _own_case(
    outage: str | None,
    jobs: int | None,
    rate: str | None,
    latency: str | None,
    workers: int | None,
    concurrency: int | None,
    no_hints: bool,
) -> SimulationQuestion | None:
    """A case of the user's own, if any of its options is given."""
    if not no_hints and not any(
        one is not None for one in (outage, jobs, rate, latency, workers, concurrency)
    ):
        return None
    return SimulationQuestion(
        jobs=2_000 if jobs is None else jobs,
        outage=outage,
        rate={None: "20/s", "none": None}.get(rate, rate),
        latency="1s" if latency is None else latency,
        workers=4 if workers is None else workers,
        concurrency=25 if concurrency is None else concurrency,
        hints=not no_hints,
    )


def _make_directory(plots: Path) -> None:
    """The directory of the pictures, before minutes are spent on what goes into it."""
    try:
        plots.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CallerError(f"--plots is {str(plots)!r}: {error.strerror}") from error
    if not os.access(plots, os.W_OK | os.X_OK):
        raise CallerError(f"--plots is {str(plots)!r}: nothing can be written there")


def _scenarios(names: tuple[str, ...], own: SimulationQuestion | None) -> Iterator[Scenario]:
    if own is not None:
        if names:
            raise CallerError(
                "--scenario plays a scenario as it is; leave it out to describe a case of your own"
            )
        return iter([scenario_of(own)])
    return iter(
        [one for name in names for one in scenarios_named(name)] or list(SCENARIOS.values())
    )
