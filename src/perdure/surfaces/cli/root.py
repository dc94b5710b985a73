"""The root of the command: sub-commands, and errors as one line with a meaningful exit status."""

import os
import sys
from importlib import import_module

import click

from perdure.model.errors import PerdureError

_COMMANDS = {
    name: f"{name}:{name}"
    for name in (
        "audit",
        "captures",
        "config",
        "db",
        "dead",
        "demo",
        "doctor",
        "enqueue",
        "gates",
        "metrics",
        "policy",
        "queues",
        "run",
        "runs",
        "schedules",
        "serve",
        "simulate",
        "token",
        "worker",
    )
} | {"describe": "worker:describe", "jobs": "deeds:jobs", "worker-child": "worker:worker_child"}


_HIDDEN = {"describe", "worker-child"}
_SENTENCE_CHARS_MAX = 500


class CommandGroup(click.Group):
    """A group whose help has the whole first sentence of each command: click would cut it to one line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands into the help."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        shown = [(name, one) for name, one in found if one is not None and not one.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(_SENTENCE_CHARS_MAX)) for name, one in shown]
            )


class _Root(CommandGroup):
    """Loads a command when it is asked for: all of them are most of our start-up."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by name."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(f"perdure.surfaces.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what was typed; all options but the two here belong to a command and stand after it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as refused:
            option = refused.option_name
            ctx.fail(
                f"No such option {option!r} here; options stand after their command: {ctx.command_path} COMMAND {option} …"
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find what was typed; a name that is none is answered with one that is alike, which click looks for only among loaded ones."""
        if args[0] not in _COMMANDS:
            from difflib import get_close_matches

            alike = get_close_matches(args[0], _COMMANDS.keys() - _HIDDEN)
            if alike:
                ctx.fail(
                    f"No such command {args[0]!r}; did you mean: {ctx.command_path} {alike[0]}"
                )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; a reader who has seen enough is no error, as click would have it."""
        try:
            return super().invoke(ctx)
        except PerdureError as error:
            from perdure.surfaces.cli.options import with_store  # loaded by who got so far

            error.args = (with_store(str(error)),)
            raise
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is unwritten
            sys.exit(0)


@click.group(
    cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="perdure")
def cli() -> None:
    """Run unreliable AI work to the end."""


def _warn_of_misspelt_settings() -> None:
    """Name variables that look like settings and are none; not again in the processes that a command starts."""
    is_started = sys.argv[1:2] in (["describe"], ["worker-child"]) or "--lifeline" in sys.argv
    if is_started or not any(name.startswith("PERDURE_") for name in os.environ):
        return
    from perdure.app import misspelt_variables  # most of our start-up

    for name, meant in misspelt_variables(os.environ):
        click.echo(f"perdure: warning: {name} sets nothing; did you mean {meant}?", err=True)


def main() -> None:
    """The entry point: no stack trace reaches a user."""
    _warn_of_misspelt_settings()
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
