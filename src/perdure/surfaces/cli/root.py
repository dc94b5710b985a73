"""The root of the command: sub-commands, and errors as one line with a meaningful exit status."""

import os
import sys

import click

from perdure.model.errors import PerdureError
from perdure.surfaces.cli.audit import audit
from perdure.surfaces.cli.captures import captures
from perdure.surfaces.cli.db import db
from perdure.surfaces.cli.dead import dead
from perdure.surfaces.cli.deeds import cancel, retry, run_now
from perdure.surfaces.cli.enqueue import enqueue
from perdure.surfaces.cli.gates import gates
from perdure.surfaces.cli.jobs import jobs
from perdure.surfaces.cli.policy import policy
from perdure.surfaces.cli.queues import queues
from perdure.surfaces.cli.runs import runs
from perdure.surfaces.cli.schedules import schedules
from perdure.surfaces.cli.worker import describe, worker, worker_child


class _Root(click.Group):
    """Loads what draws on the screen only when it is asked for: that is half of our start-up."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, those that are loaded late among them."""
        return sorted([*super().list_commands(ctx), "demo", "run", "simulate"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by name."""
        if cmd_name == "demo":
            from perdure.surfaces.cli.demo import demo

            return demo
        if cmd_name == "run":
            from perdure.surfaces.cli.run import run

            return run
        if cmd_name == "simulate":
            from perdure.surfaces.cli.simulate import simulate

            return simulate
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; a reader who has seen enough is no error, as click would have it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is unwritten
            sys.exit(0)


@click.group(
    cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="perdure")
def cli() -> None:
    """Run unreliable AI work to the end."""


for command in (
    audit, captures, db, dead, describe, enqueue, gates, jobs, policy, queues, runs, schedules, worker,
    worker_child,
):  # fmt: skip
    cli.add_command(command)
for deed in (cancel, retry, run_now):
    jobs.add_command(deed)


def main() -> None:
    """The entry point: no stack trace reaches a user."""
    try:
        cli(prog_name="perdure", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    except PerdureError as error:
        click.echo(f"perdure: {error}", err=True)
        sys.exit(error.exit_code)
