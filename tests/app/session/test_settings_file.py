"""The settings file: below the environment, above the defaults, and every mistake in it is told at once."""

import os
import subprocess
import sys

import pytest

from perdure import App, ConfigError
from perdure.app import settings_in_force
from perdure.config import SETTINGS, load
from perdure.model.limits import SETTINGS_FILE_BYTES_MAX


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder without a settings file, in which we are, and an environment without settings."""
    for name in [one for one in os.environ if one.startswith("PERDURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(setting) -> tuple[str, object]:
    """A value that is not its default, as a file has it, and what comes of it."""
    if setting.choices:
        other = next(one for one in setting.choices if one != setting.default)
        return f'"{other.swapcase()}"', other
    if setting.default is None:
        return "7", 7
    if setting.none:
        return f'"{setting.none.title()}"', None
    if setting.type is str:
        return '"sqlite:///other.db"', "sqlite:///other.db"
    return f"{setting.default + 1:g}", setting.default + 1


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: one.name)
def test_the_file_beats_the_default_the_environment_the_file_and_what_is_given_all(
    setting, here, monkeypatch
):
    text, value = written(setting)
    assert value != setting.default
    assert getattr(load(), setting.name) == setting.default
    (here / "perdure.toml").write_text(f"{setting.name} = {text}\n")
    assert getattr(load(), setting.name) == value
    monkeypatch.setenv(f"PERDURE_{setting.name.upper()}", str(setting.default or setting.none))
    assert getattr(load(), setting.name) == setting.default
    typed = text.strip('"')
    assert getattr(settings_in_force(**{setting.name: typed}), setting.name) == value


def test_another_file_is_named_by_a_variable_and_an_empty_one_names_none(here, monkeypatch):
    (here / "perdure.toml").write_text("concurrency = 3\n")
    (here / "other.toml").write_text("concurrency = 4\n")
    monkeypatch.setenv("PERDURE_CONFIG", "other.toml")
    assert load().concurrency == 4
    monkeypatch.setenv("PERDURE_CONFIG", "")
    assert load().concurrency == 32


def test_an_app_reads_the_same_as_a_command(here, monkeypatch):
    (here / "perdure.toml").write_text('store = "sqlite:///mine.db"\nconcurrency = 3\n')
    app = App()
    assert app.url == f"sqlite:///{here}/mine.db"
    assert app.settings["concurrency"] == settings_in_force().concurrency == 3
    assert app.settings.origin("concurrency") == "concurrency in perdure.toml"
    assert app.settings.origin("store") == "store in perdure.toml"
    assert app.working()._config.concurrency == 3
    assert app.working(concurrency=5)._config.concurrency == 5
    assert App("sqlite:///x.db").settings.origin("store") == "argument store"


def test_what_an_app_has_read_stays_with_it(here):
    (here / "perdure.toml").write_text("concurrency = 3\n")
    app = App()
    (here / "perdure.toml").write_text("concurrency = 4\n")
    assert app.working()._config.concurrency == 3


def test_all_mistakes_are_told_at_once_with_key_value_file_and_remedy(here, monkeypatch):
    (here / "perdure.toml").write_text(
        'concurency = 8\ngrace_s = "30"\npoll_s = -1\nconnections = 2.5\nprocesses = true\n'
        'log_level = "LOUD"\nstore = 5\n[queues]\nfair = true\n'
    )
    monkeypatch.setenv("PERDURE_LEASE_TTL_S", "soon")
    with pytest.raises(ConfigError) as caught:
        load(tick_s="often")
    head, *mistakes = str(caught.value).splitlines()
    assert head == "10 settings are wrong:"
    known = ", ".join(sorted(one.name for one in SETTINGS))
    assert mistakes == [
        "  - 'concurency' in perdure.toml is no setting; did you mean 'concurrency'?",
        f"  - 'queues' in perdure.toml is no setting; there are: {known}",
        "  - grace_s in perdure.toml is '30'; it must be a number, without quotes",
        "  - poll_s in perdure.toml is -1; it must be at least 0.01",
        "  - connections in perdure.toml is 2.5; it must be a whole number",
        "  - processes in perdure.toml is True; it must be a whole number",
        "  - log_level in perdure.toml is 'LOUD'; one of: DEBUG, INFO, WARNING, ERROR",
        "  - store in perdure.toml is no such value; it must be a text",
        "  - PERDURE_LEASE_TTL_S is 'soon'; it must be a number",
        "  - tick_s is 'often'; it must be a number",
    ]


def test_a_value_that_another_beats_is_checked_as_well(here, monkeypatch):
    (here / "perdure.toml").write_text("concurrency = 0\n")
    monkeypatch.setenv("PERDURE_CONCURRENCY", "3")
    with pytest.raises(ConfigError, match=r"^concurrency in perdure.toml is 0; .* at least 1$"):
        load(concurrency=4)


BAD = [
    (
        b"concurrency = \n",
        r"'perdure.toml' is not valid TOML: .*line 1.*; write one setting a line",
    ),
    (b"concurrency = 1\nconcurrency = 2\n", "not valid TOML: .*line 2"),
    (b"concurrency = 1 # \xff\n", "cannot read the settings file 'perdure.toml': .*utf-8"),
    (b"a = " + b"[" * 5_000, "not valid TOML"),
    (b"# " + b"x" * SETTINGS_FILE_BYTES_MAX, f"larger than {SETTINGS_FILE_BYTES_MAX} bytes"),
]


@pytest.mark.parametrize(("content", "words"), BAD, ids=lambda one: str(one)[:20])
def test_a_file_that_cannot_be_read_is_named_with_why(content, words, here):
    (here / "perdure.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load()


def test_a_file_as_large_as_it_may_be_is_read(here):
    line = b"concurrency = 3\n# "
    (here / "perdure.toml").write_bytes(line + b"x" * (SETTINGS_FILE_BYTES_MAX - len(line)))
    assert load().concurrency == 3


@pytest.mark.parametrize("name", ["perdure.toml", "nowhere.toml"])
def test_a_folder_and_a_named_file_that_is_not_there_are_refused(name, here, monkeypatch):
    (here / "perdure.toml").mkdir()
    monkeypatch.setenv("PERDURE_CONFIG", name)
    with pytest.raises(
        ConfigError, match=rf"'{name}': (Is a directory|No such file).*PERDURE_CONF"
    ):
        load()


def test_a_link_that_leads_nowhere_is_no_missing_file(here):
    (here / "perdure.toml").symlink_to("gone.toml")
    with pytest.raises(ConfigError, match="No such file"):
        load()


def test_the_keeper_of_an_embedded_worker_does_not_read_the_file_again(here):
    """A host may have gone to another folder, whose file is none of ours."""
    (here / "work.py").write_text(
        "import os\nfrom perdure import App\napp = App('sqlite:///work.db')\n"
        "pipe = app.pipeline('p', app.stage(name='one')(lambda item: item))\n"
        "app.ready()\nos.mkdir('away')\nos.chdir('away')\n"
        "open('perdure.toml', 'w').write('no TOML')\n"
        "with app.working():\n    print(pipe.enqueue(1).result(wait_s=60))\napp.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "work.py"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "1\n", done.stderr
