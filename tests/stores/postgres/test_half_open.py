"""A line that is gone without a word is noticed, and not by who keeps no watch."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.house.tree import ROOT

IN_A_NETWORK_OF_ITS_OWN = ["unshare", "--net"]
AS_NOBODY_IN_PARTICULAR = ["--user", "--map-current-user", "--keep-caps"]


def network() -> list[str]:
    """How to run something in a network of its own: root just may, others may inside a user namespace."""
    return [*IN_A_NETWORK_OF_ITS_OWN, *(AS_NOBODY_IN_PARTICULAR if os.geteuid() else [])]


@pytest.mark.long
def test_a_line_that_is_gone_is_noticed(missing):
    """By who waits for an answer, who listens, and who speaks; not by the twin without keepalives."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        missing("unshare and ip (Debian's util-linux and iproute2)")
    able = subprocess.run(
        [*network(), "ip", "link", "set", "lo", "up"], capture_output=True, check=False
    )
    if able.returncode:
        missing(f"a network namespace of our own: {able.stderr.decode().strip()}")
    ran = subprocess.run(
        [*network(), sys.executable, "-m", "tests.stores.postgres.half_open"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    noticed = {name: after_s for name, after_s in found.items() if name != "careless"}
    assert all(after_s is not None for after_s in noticed.values()), found
    assert min(noticed.values()) >= 0, found
    assert found["careless"] is None
