"""The verifier's demonstration, whole."""

import subprocess

import pytest
from examples.verifier.demo import FAULTS, plan

from tests.house.tree import ROOT


def test_the_plan_has_forty_runs_each_once():
    names = [one.run_id for one in plan()]
    assert (len(names), len(set(names))) == (40, 40)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_demonstration_ends_well_twice_in_a_row(tmp_path):
    for _ in range(2):
        command = ["make", "-s", "-C", str(ROOT), "example-verifier"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "for this demonstration a second is 1/300 of one" in done.stdout
        (struck,) = [line for line in done.stdout.splitlines() if "faults that struck: " in line]
        assert [one for one in FAULTS if f" {one} 0" in struck or f" {one} " not in struck] == []
        assert done.stdout.rstrip().endswith("everything is as it must be")
