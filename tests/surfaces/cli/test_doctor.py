"""perdure doctor: a line for each check, the remedy below it, JSON, and an exit status that tells."""

import itertools
import json
import os
import sys

import pytest
from click.testing import CliRunner, Result

from perdure import App
from perdure.model.errors import AppNotFound, ConfigError
from perdure.stores.sqlite import network_drive
from perdure.surfaces.cli.root import cli
from tests.surfaces.letters import module_in

CHECKS = {"settings", "store", "version", "rights", "clock", "lease", "disk", "listen", "gates"}
CHECKS |= {"dead_letters", "runs", "lanes"}

_modules = itertools.count(1)


def run(*words: str) -> Result:
    # A command lets the processes that it starts know its store, by the variable: not so the tests after this one.
    return CliRunner(env={"PERDURE_STORE": None}).invoke(cli, ["doctor", *words])


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    for name in [one for one in os.environ if one.startswith("PERDURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path) -> str:
    """The URL of a store that was just made."""
    if request.param == "postgres":
        return request.getfixturevalue("furnished")
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    app.ready()
    app.close()
    return app.url


def test_a_line_for_each_check_and_one_that_counts_them(url):
    done = run("--store", url)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    said = [line.split(": ")[0].split(maxsplit=1) for line in lines if line[:4].strip()]
    assert {check.replace(" ", "_") for word, check in said if word in ("ok", "warn")} >= CHECKS
    assert "perdure doctor MODULE:APP --store " in lines[-2]
    assert lines[-1].endswith(" to look at, 0 failed")


def test_the_same_as_json(url):
    done = run("--store", url, "--json")
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["healthy"], answer["failed"]) == (0, True, 0)
    assert {one["check"] for one in answer["checks"]} >= CHECKS
    assert {frozenset(one) for one in answer["checks"]} == {
        frozenset({"check", "severity", "text", "remedy"})
    }
    assert answer["warned"] == sum(one["severity"] == "warn" for one in answer["checks"])
    assert "***" in done.stdout or url.startswith("sqlite")


def test_what_fails_is_told_with_the_remedy_and_by_the_exit_status(url):
    done = run("--store", url, "--host", "0.0.0.0")
    assert done.exit_code == 1
    place = "fail  listen: 0.0.0.0 is reached from other machines, and the store has no token\n"
    assert f"{place}      -> make one: perdure token create" in done.output
    answer = json.loads(run("--store", url, "--host", "0.0.0.0", "--json").stdout)
    assert (answer["healthy"], answer["failed"]) == (False, 1)


def test_a_store_that_is_not_there_fails_and_is_not_made(tmp_path):
    done = run()
    assert done.exit_code == 1
    assert "fail  store: store 'sqlite:///perdure.db' does not exist" in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_network_drive_is_told(tmp_path, monkeypatch, url):
    mounts = tmp_path / "mounts"
    mounts.write_text("1 1 0:40 / / rw - cifs //there/share rw\n")
    monkeypatch.setattr(network_drive, "MOUNTS", mounts)
    is_file = url.startswith("sqlite")
    done = run("--store", url)
    assert (done.exit_code, "fail  file system: " in done.output) == (is_file, is_file)


def test_with_an_app_its_stages_are_looked_at(url, tmp_path):
    reference = module_in(tmp_path, url, f"doctored_{next(_modules)}")
    done = run(reference)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "ok    grace: 30 s at a shutdown; the longest timeout of a stage is 60 s" in done.output
    assert "ok    retries: none is to be seen" in done.output
    assert "MODULE:APP" not in done.output
    with pytest.raises(ConfigError, match="leave --store out"):
        raise run(reference, "--store", "sqlite:///other.db").exception


def test_an_app_that_is_not_there_is_an_error():
    assert isinstance(run("nowhere:app").exception, AppNotFound)


def test_settings_that_are_wrong_fail_and_nothing_else_is_asked(tmp_path):
    (tmp_path / "perdure.toml").write_text("concurency = 3\n")
    done = run("--json")
    assert done.exit_code == 1
    (only,) = json.loads(done.stdout)["checks"]
    assert (only["check"], only["severity"]) == ("settings", "fail")
    assert "did you mean 'concurrency'?" in only["text"]
