"""`perdure simulate`: what a user types, sees and is told when it is wrong."""

import json
import sys

import pytest
from click.testing import CliRunner

from perdure.model.errors import CallerError, PerdureError
from perdure.surfaces.cli.root import cli

SMALL = ["--jobs", "60", "--outage", "5s", "--seeds", "1"]


def run(*arguments):
    return CliRunner().invoke(cli, ["simulate", *arguments])


def refused(*arguments):
    result = run(*arguments)
    assert isinstance(result.exception, PerdureError)
    return str(result.exception)


def test_a_case_of_one_s_own_is_a_table_with_aims():
    result = run(*SMALL)
    assert result.exit_code == 0, result.output
    assert "60 jobs, outage of 5s, then at most 20/s" in result.output
    assert "standard, gates" in result.output
    assert "oracle" in result.output
    assert "✓ early retries 0 = 0" in result.output


def test_json_has_the_same_and_nothing_beside_it():
    result = run(*SMALL, "--json", "--no-rivals")
    (only,) = json.loads(result.output)
    assert [one["strategy"] for one in only["strategies"]] == ["gate", "oracle"]
    assert only["strategies"][0]["done"] == 60.0


def test_the_same_seeds_give_the_same_words():
    assert run(*SMALL).output == run(*SMALL).output


def test_a_policy_file_of_one_s_own_is_played(tmp_path):
    shown = CliRunner().invoke(cli, ["policy", "show", "standard"])
    path = tmp_path / "mine.toml"
    path.write_text(shown.output.replace('"standard"', '"mine"'))
    assert "mine, gates" in run(*SMALL, "--policy", str(path)).output


@pytest.mark.parametrize("name", ["reports", "converter", "datasets", "verifier", "gateway-worker"])
def test_presets_are_played_and_no_attempt_is_spent_while_held(name):
    result = run(*SMALL, "--policy", name, "--no-rivals")
    assert f"{name}, gates" in result.output
    assert "✓ attempts spent while held 0 = 0" in result.output


def test_what_is_wrong_is_named():
    assert "W1, W2a" in refused("--scenario", "W17")
    assert "--rate is '20'" in refused("--rate", "20")
    assert "--rate is ''" in refused("--rate", "")
    assert "--latency is ''" in refused("--latency", "")
    assert "did you mean 'standard'" in refused("--policy", "stadard")
    assert "leave it out" in refused("--scenario", "W1", "--jobs", "5")
    assert run("--seeds", "0").exit_code == 2


def test_pictures_without_matplotlib_name_the_extra_before_anything_is_played(
    monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "perdure[sim]" in refused(*SMALL, "--plots", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_pictures_where_no_directory_can_be_are_refused_before_anything_is_played(tmp_path):
    pytest.importorskip("matplotlib", reason="perdure[sim] is not installed")
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "pictures")
    result = run(*SMALL, "--plots", path)
    assert isinstance(result.exception, CallerError)
    assert str(result.exception) == f"--plots is {path!r}: Not a directory"
    assert result.output == ""


def test_the_help_has_examples():
    text = run("--help").output
    assert "perdure simulate --policy my.toml --outage 45m --jobs 10000 --rate 20/s" in text
