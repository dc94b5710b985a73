"""The whole demonstration, from a shell, with the real model; and what it would complain about."""

import re
import subprocess

import pytest
from examples.gateway.demo import FAULTS, TEXT, told_keys, wishes
from examples.gateway.scripted import KEY

from tests.examples.converter_kit import ROOT


def test_users_ask_for_something_that_ends_with_each_sort_of_code_and_by_both_ways():
    ends = {end for one in wishes() for end in one.ends}
    assert {TEXT, "INTERNAL_ERROR", "UNKNOWN", "CONFIG_MISSING", "INVALID_REQUEST", "UPSTREAM_ERROR"} <= ends  # fmt: skip
    assert {one.later for one in wishes()} == {True, False}
    steps = " ".join(one.prompt.partition("|")[0] for one in wishes())
    assert [one for one in FAULTS if one not in steps] == ["worker killed", "no key"]


def test_a_key_of_any_provider_in_a_log_is_told_by_the_name_of_its_setting(tmp_path):
    given = {"AI_LOCAL_KEY": "of-the-model", "AI_CLOUD_KEY": KEY, "AI_UNSET_KEY": ""}
    (tmp_path / "api.log").write_text("nothing\n")
    assert told_keys(tmp_path, given) == []
    (tmp_path / "gateway.log").write_text("Bearer of-the-model\n")
    (tmp_path / "worker.log").write_text(f"your key was {KEY}\n")
    assert sorted(told_keys(tmp_path, given)) == [
        "gateway.log has AI_LOCAL_KEY in it",
        "worker.log has AI_CLOUD_KEY in it",
    ]


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
