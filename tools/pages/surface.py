"""Settings and commands: what a user types."""

from collections.abc import Iterator

import click
from tools.pages.text import code, facts, prose, table

from perdure.config import SETTINGS, variable_of
from perdure.surfaces.cli.root import cli


def settings_page() -> list[str]:
    lines = [
        "# Settings",
        "",
        "An argument or an option beats the environment variable, which beats the settings file, which beats the default.",
        "The file is `perdure.toml` in the working folder, or the one that `PERDURE_CONFIG` names; where that is empty, none is",
        "read. It has a line for each setting, as in `concurrency = 8`.",
        "`perdure config show --origin` says what is in force and where it comes from. [More](../howto-settings.md).",
        "",
    ]
    for one in SETTINGS:
        lines += [f"## {one.name}", "", one.help, ""]
        lines += facts(
            {
                "variable": code(variable_of(one)),
                "type": one.type.__name__,
                "default": code(one.default),
                "unit": one.unit,
                "least": "" if one.least is None else f"{one.least:g}",
                "most": "" if one.most is None else f"{one.most:g}",
                "or": code(one.none) if one.none else "",
                "one of": ", ".join(code(choice) for choice in one.choices),
                "secret": "yes, it may hold a password" if one.secret else "",
            }
        )
    return lines


def cli_page() -> list[str]:
    lines = [
        "# Command line",
        "",
        "A command that did what it was told exits with 0.",
        "An error is one line on standard error and the [exit status of its class](errors.md).",
        "",
    ]
    for path, command in commands(cli):
        lines += _command(path, command)
    return lines


def commands(root: click.Command, path: str = "perdure") -> Iterator[tuple[str, click.Command]]:
    """Every command that is not hidden, with its path, parents first."""
    yield path, root
    for name, command in _shown(root):
        yield from commands(command, f"{path} {name}")


def _shown(command: click.Command) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return []
    context = click.Context(command)
    found = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [(name, one) for name, one in found if one is not None and not one.hidden]


def _command(path: str, command: click.Command) -> list[str]:
    usage = " ".join([path, *command.collect_usage_pieces(click.Context(command))])
    lines = [f"## {path}", "", "```", usage, "```", ""]
    for paragraph in (command.help or "").split("\n\n"):
        lines += [prose(paragraph), ""]
    for name, _ in _shown(command):
        whole = f"{path} {name}"
        lines.append(f"- [{whole}](#{whole.replace(' ', '-')})")
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    if isinstance(command, click.Group) or not options:
        return [*lines, ""]
    return lines + table(("option", "value", "meaning"), map(_option, options))


def _option(option: click.Option) -> tuple[str, str, str]:
    meaning = [option.help or ""]
    if isinstance(option.type, click.IntRange):
        meaning.append(option_range(option.type))
    if option.show_default and isinstance(option.default, str | int | float):
        meaning.append(f"Default: {option.default}.")
    if option.name in {one.name for one in SETTINGS}:
        meaning.append(f"Setting: [{option.name}](settings.md#{option.name}).")
    names = ", ".join(code(name) for name in option.opts)
    return names, _value(option), " ".join(text for text in meaning if text)


def option_range(numbers: click.IntRange) -> str:
    """From where to where; the largest number that a store can hold is no end to speak of."""
    if numbers.max is None or numbers.max >= 2**63 - 1:
        return f"{numbers.min} or more."
    return f"From {numbers.min} to {numbers.max}."


def _value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return ", ".join(code(choice) for choice in option.type.choices)
    return option.metavar or option.type.name.removesuffix(" range")
