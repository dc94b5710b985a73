"""What promtool, of Prometheus itself, says of the rules and of a scrape; in the long tests, for it is fifty megabytes."""

import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from perdure.app.session.metrics import metrics_text
from perdure.observers.process_figures import ProcessFigures
from tests.observers.test_metrics import figures_of

pytestmark = pytest.mark.long

SERIES = Path(__file__).with_name("alert_rules_test.yml")


@pytest.fixture
def promtool(missing):
    """It, asked with these words and this input."""
    found = shutil.which("promtool")
    if found is None:
        missing("promtool (Debian's prometheus; `make parts-long` as root installs it)")

    def ask(*words: str | Path, told: bytes = b"") -> str:
        done = subprocess.run(
            [found, *words], input=told, capture_output=True, check=False, timeout=600
        )
        answer = (done.stdout + done.stderr).decode()
        assert done.returncode == 0, answer
        return answer

    return ask


def test_the_rules_are_sound(promtool):
    with as_file(files("perdure.observers") / "alert_rules.yml") as rules:
        assert "SUCCESS: " in promtool("check", "rules", rules)


def test_each_alert_is_silent_when_all_is_well_and_fires_when_it_is_not(promtool, tmp_path):
    played = tmp_path / "played.yml"
    with as_file(files("perdure.observers") / "alert_rules.yml") as rules:
        played.write_text(SERIES.read_text().replace("RULES", str(rules)))
        assert "SUCCESS" in promtool("test", "rules", played)


def test_a_scrape_has_no_fault(promtool):
    figures = ProcessFigures()
    figures.add_turn(0.1)
    assert promtool("check", "metrics", told=metrics_text(figures_of("a"), figures.read())) == ""
