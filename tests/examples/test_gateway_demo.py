"""The whole demonstration, from a shell, with the real model; and what it would complain about."""

import re
import subprocess

import pytest
from examples.gateway.demo import FAULTS, TEXT, wishes

from tests.examples.converter_kit import ROOT


def test_users_ask_for_something_that_ends_with_each_sort_of_code_and_by_both_ways():
    ends = {end for one in wishes() for end in one.ends}
    assert {TEXT, "INTERNAL_ERROR", "UNKNOWN", "CONFIG_MISSING", "INVALID_REQUEST", "UPSTREAM_ERROR"} <= ends  # fmt: skip
    assert {one.later for one in wishes()} == {True, False}
    steps = " ".join(one.prompt.partition("|")[0] for one in wishes())
    assert [one for one in FAULTS if one not in steps] == ["worker killed", "no key"]


@pytest.mark.long
@pytest.mark.story
@pytest.mark.timeout(900)
def test_the_demonstration_ends_well_from_another_folder_and_twice_in_a_row(tmp_path):
    for _ in range(2):
        ended = subprocess.run(
            ["make", "-s", "-C", str(ROOT), "example-gateway"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "the audit says: clean" in ended.stdout
        assert "everything is as promised" in ended.stdout
        (faults,) = re.findall("faults that struck: (.+)", ended.stdout)
        struck = [one.rpartition(" ") for one in faults.split(", ")]
        assert [name for name, _, _ in struck] == list(FAULTS)
        assert all(int(count) > 0 for _, _, count in struck), faults
