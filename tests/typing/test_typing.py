"""The public API is typed: what people write passes their own strict check."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

USES = Path(__file__).with_name("uses.py")


def checked(file: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def test_usual_uses_of_the_public_api_pass_a_strict_check(cache):
    done = checked(USES, cache)
    assert done.returncode == 0, done.stdout


def test_a_wrong_use_is_seen(cache, tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(USES.read_text() + '\nPolicy("p", attempts_max="three")\n')
    done = checked(wrong, cache)
    assert "attempts_max" in done.stdout
    assert done.returncode == 1


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_misspelt_name_of_a_statement_is_seen(cache, tmp_path, store):
    use = tmp_path / "use.py"
    use.write_text(f"from perdure.stores.{store}.statements import SQL\nSQL.claim\nSQL.clam\n")
    assert re.findall(r'has no attribute "(\w+)"', checked(use, cache).stdout) == ["clam"]
