"""The numbers of a preset change with a new version and a decision record, or not at all (R115).

A row stays for ever: what a version was is what attempts in old databases were judged by. To change a preset, raise its
version, write the record, and add a row; the failure says the digest.
"""

import hashlib
import json
from dataclasses import fields
from pathlib import Path

import pytest

from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.gate.window import WindowSettings
from perdure.rules.policy import Match, Policy
from perdure.rules.policy_form import policy_form
from perdure.rules.presets import PRESETS, gate_for, preset
from perdure.rules.vocabulary import GATEWAY

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "docs" / "decisions"

# What counts as a number: all that decides whether and when something is tried again, so also the matches, and the codes
# that a wire vocabulary reads. Words that only people read (names, other vocabularies) are not among it.
NUMBERS = (
    "profile", "scope", "attempts_max", "waits_max", "wait_s_max", "crashes_max", "snoozes_max",
    "crash_is_failure", "deadline_s", "inline_s_max", "exhausted", "heed_server", "backoff",
    "jitter", "hint", "rules", "retriable", "otherwise",
    "matches",
)  # fmt: skip

LATER = ("weak_share",)  # numbers that older versions did not have, and whose absence says the same
WORDS = ("name", "version", "vocabulary", "own_delay")  # no preset has an own_delay

# label: (digest of the numbers, the record that introduced them)
KNOWN: dict[str, tuple[str, str]] = {
    "standard/1": ("9556b47fd2c81a0a", "0018"),
    "standard/2": ("6175b527fe7902ef", "0019"),
    "standard/3": ("0cfe084a1100af05", "0043"),
    "reports/1": ("063bcda5fa70d86d", "0018"),
    "converter/1": ("a26a84c325069d9a", "0018"),
    "datasets/1": ("d796ce0f5f33649b", "0018"),
    "datasets-llm/1": ("1bb9941cb9d5e77c", "0018"),
    "datasets-once/1": ("c6f1db0988b2b5e7", "0018"),
    "verifier/1": ("1b5ff23ca17db06a", "0018"),
    "gateway-worker/1": ("602bac85e7533d1a", "0018"),
    "gateway-costly/1": ("d70f01dfadb30f61", "0018"),
    "gateway-worker/2": ("b002ba87341d542c", "0042"),
    "gateway-costly/2": ("525d96998977b705", "0042"),
    "gateway-sync/1": ("ca63aabcd2bf77a6", "0018"),
}


def digest(policy: Policy) -> str:
    form = policy_form(policy)
    numbers = {name: form.get(name) for name in NUMBERS}
    numbers |= {name: form[name] for name in LATER if name in form}
    if policy.vocabulary.wire:
        numbers["wire"] = [dict(policy.vocabulary.kinds), dict(policy.vocabulary.internal)]
    text = json.dumps(numbers, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def complaint(policy: Policy) -> str | None:
    """What is wrong with the numbers of a preset, if anything is."""
    known = KNOWN.get(policy.label)
    if known is None:
        return (
            f"{policy.label} has no row here; write its decision record, and add {digest(policy)}"
        )
    if known[0] != digest(policy):
        return f"the numbers of {policy.label} have changed; give it a new version and a record"
    return None


def test_every_field_of_a_policy_is_a_number_or_is_known_not_to_be_one():
    assert {*NUMBERS, *LATER, *WORDS} == {one.name for one in fields(Policy)}
    assert [name for name in PRESETS if preset(name).own_delay is not None] == []


@pytest.mark.parametrize("name", PRESETS)
def test_the_numbers_of_a_preset_are_those_of_its_version(name):
    assert complaint(preset(name)) is None


def test_the_breaker_of_the_converter_has_the_numbers_of_its_version():
    """They belong to `converter/1` as those of its policy do: others need a new version and a record."""
    gate = gate_for(preset("converter"))
    assert preset("converter").label == "converter/1"
    assert (gate.window, gate.gaps, gate.jitter) == (
        WindowSettings(calls=20, calls_min=10, fail_share=0.5),
        Backoff("fixed", base_s=60.0, cap_s=None),
        Jitter("none"),
    )
    assert (gate.flow_after, gate.isolated_share) == (3, 0.0)


@pytest.mark.parametrize("label", KNOWN)
def test_each_version_of_a_preset_is_named_by_its_record(label):
    (record,) = RECORDS.glob(f"{KNOWN[label][1]}-*.md")
    assert f"`{label}`" in record.read_text(encoding="utf-8")


def test_no_version_of_a_preset_is_left_out():
    """They count from 1, and the latest is the one that is shipped."""
    for name in PRESETS:
        versions = sorted(
            int(label.rpartition("/")[2]) for label in KNOWN if label.startswith(f"{name}/")
        )
        assert versions == list(range(1, preset(name).version + 1))


def test_the_documents_say_so():
    readme = (RECORDS / "README.md").read_text(encoding="utf-8")
    assert "The numbers of a preset need a record" in readme
    assert "A number in a policy" not in readme
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "a new policy version and a decision record" in guide


@pytest.mark.parametrize(
    "changed",
    [
        {"attempts_max": 6},
        {"backoff": Backoff(base_s=3.0)},
        {"rules": {}},
        {"version": 1},
        {"version": 4},
        {"weak_share": 0.5},
        {"weak_share": None},
        {"matches": (Match(Kind.AUTH, code="E_KEY"),)},
        {"vocabulary": GATEWAY},
    ],
)
def test_a_changed_number_would_be_noticed(changed):
    assert complaint(replace(preset("standard"), **changed)) is not None


def test_a_changed_code_of_a_wire_would_be_noticed():
    kinds = dict(GATEWAY.kinds) | {"E_BUSY": Kind.OVERLOADED}
    policy = preset("gateway-worker")
    changed = replace(policy, vocabulary=replace(GATEWAY, kinds=kinds), rules=dict(policy.rules))
    assert complaint(changed) is not None
