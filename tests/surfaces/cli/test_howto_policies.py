"""docs/howto-policies.md says what is so: its examples are one policy, its output is what is printed, its numbers hold."""

import tomllib
from dataclasses import fields

import pytest
from click.testing import CliRunner

from perdure import Action, Backoff, Hints, Jitter, Match, Policy, Rule
from perdure.model.kinds import GROUPS, Kind
from perdure.rules.backoff import base_delay_s
from perdure.rules.policy_form import policy_from
from perdure.rules.presets import preset
from perdure.surfaces.cli.root import cli
from tests.house.markdown import fences
from tests.house.tree import ROOT

PAGE = (ROOT / "docs" / "howto-policies.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())


def block(language: str) -> str:
    return "\n".join(next(one.lines for one in fences(PAGE) if one.language == language))


def test_both_examples_are_the_same_policy():
    known: dict[str, Policy] = {}
    exec(block("python"), known)
    patient = known["patient"]
    assert patient == policy_from(tomllib.loads(block("toml")))
    assert patient.rules[Kind.AMBIGUOUS].attempts_max == 9
    assert patient.rules[Kind.TIMEOUT].action == "fail"
    assert patient.rules[Kind.RATE_LIMITED] == preset("standard").rules[Kind.RATE_LIMITED]


def test_the_example_with_every_part_is_the_same_policy_in_both_forms():
    known: dict[str, Policy] = {}
    (example,) = [one for one in fences(PAGE) if any("night =" in line for line in one.lines)]
    exec("\n".join(example.lines), known)
    (file,) = [one for one in fences(PAGE) if "# night.toml" in one.lines]
    assert known["night"] == policy_from(tomllib.loads("\n".join(file.lines)))


@pytest.mark.parametrize(
    ("part", "prefix"),
    [(Policy, ""), (Backoff, "backoff."), (Jitter, "jitter."), (Hints, "hint.")],
)
def test_every_field_is_explained(part, prefix):
    tables = WORDS.partition("## Every field")[2].partition("### Rules")[0]
    parts = {"backoff", "jitter", "hint"}  # each field of theirs has a line
    names = [f"`{prefix}{one.name}`" for one in fields(part) if one.name not in parts]
    assert [name for name in names if name not in tables] == []


def test_every_action_and_every_field_of_a_rule_and_of_a_match_is_named():
    below = WORDS.partition("## Every field")[2]
    names = [*Action, *(one.name for part in (Rule, Match) for one in fields(part))]
    spoken = {"action", "kind"}  # the first argument of each
    assert [name for name in names if name not in spoken and f"`{name}`" not in below] == []


def test_what_a_check_prints_is_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\n[rules]\nnetwork = "retry"\nlimits = "wait"\n'
    )
    printed = CliRunner().invoke(cli, ["policy", "check", "mine.toml"]).output
    shown = block("").splitlines()
    assert shown[0] == "$ perdure policy check mine.toml"
    assert printed.startswith("\n".join(shown[1:]).removesuffix("…"))


def test_the_groups_are_those_of_the_table():
    assert (
        f"are {', '.join(f'`{one}`' for one in list(GROUPS)[:-1])} and `{list(GROUPS)[-1]}`"
        in WORDS
    )


def test_a_cap_is_recommended_for_the_reason_that_is_given():
    """C5."""
    assert "**Set `backoff.cap_s` in every policy**" in WORDS
    open_ended = [base_delay_s(Backoff(cap_s=None), n) for n in range(1, 20)]
    assert next(n for n, one in enumerate(open_ended, 1) if one > 3_600) == 12
    assert next(n for n, one in enumerate(open_ended, 1) if one > 86_400) == 17
    assert (
        "more than an hour after the 12th failure, and for more than a day after the 17th" in WORDS
    )
    assert f"it is {Backoff().cap_s:.0f} s unless you say otherwise" in WORDS


def test_what_is_said_of_weak_upstreams_is_so():
    shown = [line for one in fences(PAGE) for line in one.lines if "latest calls fail" in line]
    printed = CliRunner().invoke(cli, ["policy", "explain", "standard", "--error", "http:503"])
    (line,) = shown
    assert line in printed.output.splitlines()
    (example,) = [
        one.lines for one in fences(PAGE) if any("strict =" in line for line in one.lines)
    ]
    known: dict[str, Policy] = {}
    exec("\n".join(example), known)
    assert known["strict"].weak_share is None
    standard, thrifty = preset("standard"), known["thrifty"]
    assert f"{standard.waits_max} + {standard.attempts_max} = 25 calls" in WORDS
    assert (thrifty.waits_max, thrifty.attempts_max, thrifty.weak_share) == (5, 5, 0.25)
