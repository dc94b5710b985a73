"""What the verifier's README says of its variants and its commands is so."""

import re

from tests.house.tree import ROOT

FOLDER = ROOT / "examples" / "verifier"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_variants_of_the_readme_are_those_of_the_table():
    from examples.verifier.errors import Variant

    named: dict[str, str] = {}
    for line in PAGE.splitlines():
        row = re.match(r"\| `(final|retryable|rate_limited)`,[^|]+\|[^|]+\|([^|]+)\|", line)
        prefix = ""
        for code in re.findall(r"`([a-z_.]+)`", row[2]) if row else ():
            prefix = prefix if code.startswith(".") else code.partition(".")[0]
            named[code if not code.startswith(".") else prefix + code] = row[1]
    told = {one.code: one.error_class for one in Variant if not one.code.startswith("replay.")}
    assert named == told
    assert len(named) == 22


def test_its_commands_are_those_that_there_are_with_the_options_that_it_names():
    from examples.verifier.cli import commands

    found = {}
    for name, one in commands.commands.items():
        for under, command in getattr(one, "commands", {None: one}).items():
            found[f"{name} {under}" if under else name] = {
                option for parameter in command.params for option in parameter.opts
            }
    rows = [line for line in PAGE.splitlines() if re.match(r"\| `(daemon|run|query|admin)", line)]
    named = set()
    for line in rows:
        group = ""
        for words in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
            if not words.startswith("-"):
                first = words.split()[0]
                group = first if first in ("query", "admin") else group
                plain = " ".join(one for one in words.split() if one.islower())
                named.add(plain if plain in found else f"{group} {plain}")
    assert named == set(found)
    assert len(found) == 11
    filters = {"--status", "--game", "--category", "--class", "--text", "--older-than"}
    for name in ("query list", "query errors", "admin reset", "admin cleanup"):
        assert filters <= found[name], name
    for name in ("admin reset", "admin cleanup"):
        assert {"--dry-run", "--force"} <= found[name], name
    assert "--force" in found["admin reset-run"]
    assert "--category" in found["daemon"]
    assert all("--json" in options for name, options in found.items() if name.startswith("query"))
