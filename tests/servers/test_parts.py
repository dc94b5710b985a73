"""tools/parts.sh asks nothing of the network for what is there, and says what to do where it cannot."""

import os
import subprocess

from tests.house.tree import ROOT


def parts(tmp_path, *wanted: str, uid: int) -> subprocess.CompletedProcess[str]:
    """Run it as somebody, with an apt-get that only notes that it was called."""
    stand_ins = {"id": f"echo {uid}", "apt-get": f'echo "$@" >>"{tmp_path}/called"; exit 1'}
    for name, body in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    return subprocess.run(
        ["sh", ROOT / "tools" / "parts.sh", *wanted],
        env={"PATH": f"{tmp_path}:{os.defpath}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_there_is_not_asked_for(tmp_path):
    ended = parts(tmp_path, "sh", "ls", uid=os.getuid())
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert not (tmp_path / "called").exists()


def test_without_root_it_installs_nothing_and_says_how_to(tmp_path):
    ended = parts(tmp_path, "sh", "no-such-part", uid=1000)
    assert ended.returncode == 0
    assert "parts: MISSING no-such-part" in ended.stderr
    assert "sudo apt-get install --no-install-recommends no-such-part" in ended.stderr
    assert not (tmp_path / "called").exists()
