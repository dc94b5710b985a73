"""What the verifier's README says of its variants and its commands is so."""

import re
import subprocess
import sys

from tests.house.tree import ROOT

FOLDER = ROOT / "examples" / "verifier"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_variants_of_the_readme_are_those_of_the_table():
    from examples.verifier.errors import Variant

    named: dict[str, str] = {}
    for line in PAGE.splitlines():
        row = re.match(r"\| `(final|retryable|rate_limited)`,[^|]+\|[^|]+\|([^|]+)\|", line)
        prefix = ""
        for code in re.findall(r"`([a-z_.]+)`", row[2]) if row else ():
            prefix = prefix if code.startswith(".") else code.partition(".")[0]
            named[code if not code.startswith(".") else prefix + code] = row[1]
    told = {one.code: one.error_class for one in Variant if not one.code.startswith("replay.")}
    assert named == told
    assert len(named) == 22


def test_its_commands_are_those_that_there_are():
    def helped(*words: str) -> str:
        command = [sys.executable, "-m", "verifier", *words, "--help"]
        ended = subprocess.run(
            command, cwd=FOLDER.parent, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    told = helped()
    assert [
        one for one in ("daemon", "run", "run-src", "query", "admin") if f"  {one} " not in told
    ] == []
