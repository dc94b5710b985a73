"""What takes the document's own time: the waits between tries, by the clock; and the whole demonstration, from a shell."""

import re
import subprocess
import sys

import pytest

from tests.examples.converter_kit import ROOT, pdf_of, until

pytestmark = [pytest.mark.long, pytest.mark.story]


def test_the_waits_between_tries_are_kept_by_the_clock(make_converter_trial):
    with make_converter_trial() as trial, trial.working():
        trial.order(status=502, code="X")
        job = trial.job(trial.user().upload(pdf_of("by the clock")))
        until("its tries are used up", lambda: job.state == "failed", within_s=120)
        first, second, third = job.attempts()
    for before, after, least_s in ((first, second, 5.0), (second, third, 10.0)):
        planned_s = (before.due_at - before.settled_at).total_seconds()
        assert planned_s == pytest.approx(before.delay_s, abs=0.01)
        assert least_s <= before.delay_s <= least_s + 5.0
        assert after.claimed_at >= before.due_at


@pytest.mark.timeout(900)
def test_the_demonstration_ends_well_from_another_folder_and_twice_in_a_row(tmp_path):
    for _ in range(2):
        ended = subprocess.run(
            ["make", "-s", "-C", str(ROOT), "example-converter"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "44 complete, 4 failed" in ended.stdout
        assert "the audit says: clean" in ended.stdout
        (faults,) = re.findall("faults that struck: (.+)", ended.stdout)
        assert all(int(one.rpartition(" ")[2]) > 0 for one in faults.split(", ")), faults


def test_the_demonstration_refuses_what_it_cannot_show():
    ended = subprocess.run(
        [sys.executable, "-m", "examples.converter.demo", "--files", "3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, "at least 24 files" in ended.stderr) == (2, True)
