"""Pictures: drawn, small, and the same for the same run."""

import importlib.util
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner

from perdure.simulate.plots import draw
from perdure.surfaces.cli.root import cli
from tests.simulate.kit import down, played


@pytest.fixture(autouse=True)
def _matplotlib(missing):
    if importlib.util.find_spec("matplotlib") is None:
        missing("matplotlib")


def test_a_picture_is_an_svg_of_modest_size_and_the_same_twice(tmp_path):
    scene = down(60.0)
    plays = [("gates", played(scene)), ("no gates", played(scene, gate=None))]
    texts = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (path,) = draw(scene, plays, folder, forms=("svg",))
        texts.append(path.read_text())
    assert texts[0] == texts[1]
    assert len(texts[0]) < 100_000
    assert ET.fromstring(texts[0]).tag.endswith("svg")
    assert "calls per second" in texts[0]
    assert "jobs waiting" in texts[0]


def test_the_command_writes_png_and_svg(tmp_path):
    arguments = ["--jobs", "60", "--outage", "5s", "--seeds", "1", "--no-rivals"]
    result = CliRunner().invoke(cli, ["simulate", *arguments, "--plots", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    written = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert written == ["asked.png", "asked.svg"]
    assert (tmp_path / "new" / "asked.png").read_bytes().startswith(b"\x89PNG")
