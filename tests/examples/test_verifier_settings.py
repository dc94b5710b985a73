"""daemon.yaml: every key does something, and what is wrong is named."""

import os
import re

import pytest
import yaml
from examples.verifier import settings as known
from examples.verifier.app import make_verifier, policy_of
from examples.verifier.settings import read_settings

from perdure import ConfigError, Policy
from tests.house.tree import ROOT

SAMPLE = ROOT / "examples" / "verifier" / "daemon.yaml"
LEAST = "service: http://127.0.0.1:1\ngames: {burrow: [any%]}\n"


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    for name in [one for one in os.environ if one.startswith("PERDURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "daemon.yaml"


def test_the_file_of_the_repository_has_every_key_and_the_defaults(config):
    config.write_text(LEAST)
    least, _ = read_settings()
    config.write_text(SAMPLE.read_text())
    sample, categories = read_settings()
    assert categories == [("burrow", "any%"), ("burrow", "all-gems")]
    assert {name: one.value for name, one in sample.settled.items() if name != "service"} == {
        name: one.value for name, one in least.settled.items() if name != "service"
    }
    keys = {one.key for one in known.NAMES} - {"replay.python"}
    assert "  # python: " in SAMPLE.read_text()  # its default is whatever runs the daemon
    assert {one for one in keys if sample.origin(named(one)) != f"{one} in daemon.yaml"} <= {
        "keep_days", "look_back_days",
    }  # fmt: skip
    assert sample.origin("retain_succeeded_s") == "keep_days in daemon.yaml, in d"


def named(key: str) -> str:
    return next(one.name for one in known.NAMES if one.key == key)


def test_its_numbers_are_those_of_the_document(config):
    config.write_text(LEAST)
    settings, _ = read_settings()
    policy, published = policy_of(settings), Policy.based_on("verifier", name="published")
    assert (policy.attempts_max, policy.backoff) == (published.attempts_max, published.backoff)
    assert (settings[known.POLLING_S], settings[known.LOOK_BACK_S]) == (900, 30 * 86_400)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "service: ftp://x\ngames: {burrow: [any%]}",
            "service in daemon.yaml must begin with http://",
        ),
        ("games: {burrow: [any%]}", "VERIFIER_SERVICE or service in daemon.yaml is not set"),
        ("service: http://x", "games in daemon.yaml must name the categories"),
        ("service: http://x\ngames: burrow", "games in daemon.yaml must name the categories"),
        ("service: http://x\ngames: {}", "games in daemon.yaml must name the categories"),
        *(
            (
                f"service: http://x\ngames: {{burrow: {each}}}",
                f"games.burrow in daemon.yaml is {is_}; it must be a list",
            )
            for each, is_ in (
                ("any%", "'any%'"),
                ("5", "5"),
                ("[null]", "[None]"),
                ("[]", "[]"),
                ("[100]", "[100]"),
                ("[[a]]", "[['a']]"),
                ("{any%: 1}", "{'any%': 1}"),
                ("[a, a]", "['a', 'a']"),
                ("", "None"),
            )
        ),
        (
            f"{LEAST}poling_interval: 3",
            "has no key poling_interval; its keys are concurrency, data",
        ),
        (f"{LEAST}retry: {{max_atempts: 3}}", "retry.max_attempts"),
        (f"{LEAST}retry: {{max_attempts: 0}}", "retry.max_attempts"),
        (f"{LEAST}keep_days: 30", "keep_days in daemon.yaml must be more than look_back_days"),
        *(
            (f"{LEAST}oldest_version: {given}", f"oldest_version in daemon.yaml is '{given}'")
            for given in ("latest", "2.0.1")
        ),
        ("service: [", "is no YAML"),
        ("- a", "must have keys"),
    ],
)
def test_what_is_wrong_is_named(config, content, said):
    config.write_text(content)
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_settings()


@pytest.mark.parametrize(
    ("url", "said"),
    [("http://[::1", "service in daemon.yaml must be"), ("http://[v1.x]", "service .* is no URL")],
)
def test_a_service_that_is_no_url_is_refused_at_the_start(config, url, said):
    config.write_text(f"service: {url}\ngames: {{burrow: [any%]}}\n")
    with pytest.raises(ConfigError, match=said):
        make_verifier(*read_settings())


def test_a_file_that_is_not_there_is_named_with_the_remedy(config):
    with pytest.raises(ConfigError, match=r"daemon.yaml cannot be read \(No such file .*--config"):
        read_settings()


def test_it_is_read_as_data_only(config):
    config.write_text(LEAST + "data: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ConfigError, match="is no YAML"):
        read_settings()
    assert yaml.safe_load(SAMPLE.read_text())["retry"]["max_attempts"] == 8
