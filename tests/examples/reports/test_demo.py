"""The demonstration itself, with the real model, from another folder, and twice in a row."""

import subprocess
import sys

import pytest
from tests.house.tree import ROOT

DEMO = ROOT / "examples" / "reports" / "demo.py"
FAULTS = (
    "429 with a hint", "429 without a hint", "500", "503", "connection reset", "slow answer", "cut-off JSON", "wrong schema",
    "S3 SlowDown at a read", "S3 SlowDown at a write", "database restart", "worker killed",
)  # fmt: skip


def play(folder, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, DEMO, *options], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().splitlines()[-1].startswith("everything is as it must be")
    assert "\nclean\n" in done.stdout
    assert "orphans: none" in done.stdout
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(1700)
def test_without_faults_none_fails_and_the_waits_are_said_to_be_scaled(tmp_path):
    said = play(tmp_path)
    assert "waits of the document × 0.02, for this demonstration only" in said
    assert "12 of 12 gave a valid report" in said
    assert "accepted 12 = queued 0 + processing 0 + succeeded 12 + failed 0" in said


@pytest.mark.long
@pytest.mark.timeout(1700)
@pytest.mark.parametrize("time", ["first", "second"])
def test_under_faults_of_every_kind_only_the_fatal_ones_fail(tmp_path, time):
    said = play(tmp_path, "--faults")
    (struck,) = [line for line in said.splitlines() if line.startswith("faults struck: ")]
    assert [one for one in FAULTS if f"{one} " not in struck] == []
    assert "accepted 12 = queued 0 + processing 0 + succeeded 10 + failed 2" in said
