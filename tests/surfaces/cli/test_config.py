"""perdure config show: each setting with its value, its unit and where it comes from; and that a worker goes by them."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from perdure.app import load_pipeline, load_session
from perdure.app.session.settings import Settings
from perdure.config import SETTINGS
from perdure.model.errors import ConfigError
from perdure.surfaces.cli.root import cli
from perdure.surfaces.cli.run import _worker
from perdure.surfaces.cli.worker import Described, description
from tests.engine.kit import until

APP = """
import os
from perdure import Alias, App, Setting, load_settings

TIMEOUT = Setting("gateway_timeout_s", float, 60.0, "seconds", "For one call.", least=1.0)
KEY = Setting("gateway_key", str, "", "", "A secret.", secret=True)
settings = load_settings(
    [
        Alias("store", variable="DATABASE_URL"),
        Alias("concurrency", variable="WORKER_CONCURRENCY", key="workers"),
        Alias("lease_ttl_s", variable="WORKER_LEASE_TTL_SEC"),
        Alias(TIMEOUT, variable="GATEWAY_TIMEOUT_MS", unit="ms"),
        Alias(KEY, variable="GATEWAY_KEY"),
    ],
    file_name="daemon.yaml",
    file_content={"workers": 3},
)
app = App(settings=settings)
pipe = app.pipeline("p", app.stage(name="one")(lambda item: item))
"""

_modules = itertools.count(1)


@pytest.fixture
def module(tmp_path, monkeypatch) -> str:
    for name in [one for one in os.environ if one.startswith("PERDURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"named_{next(_modules)}"
    (tmp_path / f"{name}.py").write_text(APP)
    monkeypatch.setenv("DATABASE_URL", "sqlite:///named.db")
    monkeypatch.setenv("WORKER_LEASE_TTL_SEC", "7.5")
    monkeypatch.setenv("GATEWAY_TIMEOUT_MS", "1500")
    monkeypatch.setenv("GATEWAY_KEY", "canary")
    return name


def show(*words: str) -> str:
    done = CliRunner().invoke(cli, ["config", "show", *words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def by_name(*words: str) -> dict[str, dict]:
    return {one["name"]: one for one in json.loads(show(*words, "--json"))["settings"]}


def test_every_setting_is_shown_with_its_value_and_unit(module):
    head, *lines = show().splitlines()
    assert head.split() == ["setting", "value", "unit"]
    assert [line.split()[0] for line in lines] == [one.name for one in SETTINGS]
    assert "grace_s             30.0                  seconds" in lines


def test_every_setting_says_where_it_comes_from(module, monkeypatch):
    Path("perdure.toml").write_text("grace_s = 5\n")
    monkeypatch.setenv("PERDURE_POLL_S", "0.5")
    shown = show("--origin", "--store", "sqlite:///typed.db")
    told = dict(
        re.findall(r"^(\w+) .*?((?:default|variable|option|grace_s in).*)$", shown, re.MULTILINE)
    )
    assert told["store"] == "option store"
    assert told["grace_s"] == "grace_s in perdure.toml"
    assert told["poll_s"] == "variable PERDURE_POLL_S"
    assert told["tick_s"] == "default"
    assert shown.endswith("settings file: perdure.toml\n")
    monkeypatch.setenv("PERDURE_CONFIG", "")
    assert show("--origin").endswith("no settings file was read\n")


def test_an_app_is_shown_with_its_aliases_and_its_own_settings(module):
    shown = by_name(f"{module}:app")
    origins = {name: one["origin"]["says"] for name, one in shown.items()}
    assert origins["store"] == "variable DATABASE_URL"
    assert origins["concurrency"] == "workers in daemon.yaml"
    assert origins["gateway_timeout_s"] == "variable GATEWAY_TIMEOUT_MS, in ms"
    assert (shown["gateway_timeout_s"]["value"], shown["gateway_timeout_s"]["unit"]) == (
        1.5,
        "seconds",
    )
    assert shown["concurrency"]["origin"] == {
        "source": "file",
        "name": "workers",
        "file": "daemon.yaml",
        "unit": "",
        "says": "workers in daemon.yaml",
    }
    assert list(by_name()) == [one.name for one in SETTINGS]


def test_secrets_are_masked(module, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://ann:canary@example.com/work")
    for words in (["--json"], ["--origin"], []):
        shown = show(f"{module}:app", *words)
        assert "canary" not in shown
        assert "postgresql://ann:***@example.com/work" in shown
    assert by_name(f"{module}:app")["gateway_key"]["value"] == "***"


def test_a_mistake_in_the_file_is_told_by_every_command_in_one_message(module):
    Path("perdure.toml").write_text("concurency = 5\ngrace_s = 'x'\n")
    for words in (["config", "show"], ["jobs", "list"], ["audit"], ["worker", f"{module}:app"]):
        done = CliRunner().invoke(cli, words)
        assert isinstance(done.exception, ConfigError), words
        assert "did you mean 'concurrency'?" in str(done.exception)
        assert "grace_s in perdure.toml is 'x'" in str(done.exception)


def test_a_supervisor_that_does_not_load_the_app_goes_by_its_settings(module):
    told = msgspec.json.decode(description(load_session(f"{module}:app")), type=Described)
    assert b"canary" not in msgspec.json.encode(told)
    settings = Settings(told.settled).with_given({"concurrency": 9}, given_as="option")
    assert (settings.config.lease_ttl_s, settings.config.concurrency) == (7.5, 9)
    assert settings.origin("lease_ttl_s") == "variable WORKER_LEASE_TTL_SEC"


@pytest.mark.story
def test_a_worker_and_its_row_go_by_the_names_of_the_application(module):
    command = [sys.executable, "-m", "perdure.surfaces.cli", "worker", f"{module}:app"]
    process = subprocess.Popen(command)
    try:
        session = load_session(f"{module}:app")
        until(lambda: [one.ttl_s for one in session.opened.reader.workers()] == [7.5], "its row")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    session.close()


def test_a_run_lets_its_worker_log_what_somebody_asks_for_and_else_only_errors(module, monkeypatch):
    pipe = load_pipeline(f"{module}:pipe")[2]
    tuning = ["--concurrency", "3", "--log-level", "ERROR", "--log-format", "text"]
    assert _worker("x:app", pipe, None)[-6:] == tuning
    Path("perdure.toml").write_text('log_level = "info"\nlog_format = "json"\n')
    monkeypatch.delitem(sys.modules, module)
    pipe = load_pipeline(f"{module}:pipe")[2]
    assert _worker("x:app", pipe, 5)[-4:] == ["--concurrency", "5", "--log-level", "INFO"]
