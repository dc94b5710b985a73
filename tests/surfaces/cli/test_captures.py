"""perdure captures: what was put aside, listed and written byte for byte, and nothing that upsets a terminal."""

import json
import os
import pty
import subprocess
import sys

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from perdure.engine.clock import SystemClock
from perdure.model.jobs import Capture
from perdure.surfaces.cli.root import cli
from perdure.testing.store_contract.attempt_ends import success
from tests.stores.kit import Place

TEXT, BYTES, CUT = (f"00000000-0000-7000-8000-00000000000{n}" for n in (1, 2, 3))
PICTURE = bytes(range(256))
LEFT = (
    Capture(TEXT, "answer", "text/plain; charset=utf-8", "naïve\n\t{".encode(), 9, 60.0),
    Capture(BYTES, "raw", "image/png", PICTURE, 256, None),
    Capture(CUT, "raw", "text/plain", b"\x1b[2Jup", 4096, None),
)


class Desk:
    """A store with one job that has left three captures, one that has left none, and the command beside it."""

    def __init__(self, path: str) -> None:
        self.url = f"sqlite:///{path}"
        place = Place(path, clock=SystemClock())
        worker = place.hire()
        self.job = place.put(owner="ann").id
        (claim,) = place.take(worker, 1)
        place.settle(replace(success(claim, worker), captures=LEFT), by=worker)
        self.empty = place.put(key="i18").id
        self.no = claim.no
        place.close()

    def __call__(self, *words: str):
        return CliRunner().invoke(cli, ["captures", *words, "--store", self.url])

    def on_a_terminal(self, id: str) -> tuple[int, bytes, str]:
        """Exit status, what the terminal got, and what was said beside it."""
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "perdure.surfaces.cli", "captures", "show", id]
        done = subprocess.run(
            [*command, "--store", self.url], stdout=theirs, stderr=subprocess.PIPE, check=False
        )
        os.close(theirs)
        try:
            shown = os.read(ours, 65_536)
        except OSError:  # nothing was written, and nobody is there to write
            shown = b""
        os.close(ours)
        return done.returncode, shown, done.stderr.decode()


@pytest.fixture
def desk(tmp_path):
    return Desk(str(tmp_path / "work.db"))


def test_captures_of_a_job_are_listed_by_its_id_or_number(desk):
    said = desk("list", desk.job)
    first, second, third = said.stdout.splitlines()
    assert first.startswith(
        f"{TEXT}  one  token 1  answer  text/plain; charset=utf-8  9 bytes  kept until 20"
    )
    assert second == f"{BYTES}  one  token 1  raw  image/png  256 bytes  kept for ever"
    assert third.endswith("6 of 4,096 bytes  kept for ever")
    assert desk("list", str(desk.no)).stdout == said.stdout


def test_a_job_that_is_shown_says_that_it_has_left_some(desk):
    def shown(job: str) -> str:
        return CliRunner().invoke(cli, ["jobs", "show", job, "--store", desk.url]).stdout

    line = next(one for one in shown(desk.job).splitlines() if "capture" in one)
    said, listed = line.split(": ", 1)
    assert said == "  raw output was put aside, 3 captures"
    assert listed == f"perdure captures list {desk.job} --store {desk.url}"
    assert "capture" not in shown(desk.empty)


def test_a_listing_in_json_has_everything_but_the_output(desk):
    found = json.loads(desk("list", desk.job, "--json").stdout)
    assert [one["id"] for one in found] == [TEXT, BYTES, CUT]
    assert (found[2]["bytes_kept"], found[2]["bytes_whole"]) == (6, 4096)
    assert "content" not in found[0]
    assert json.loads(desk("list", desk.empty, "--json").stdout) == []


def test_a_job_that_has_left_none_says_so(desk):
    assert desk("list", desk.empty).stdout == desk("list", "i18").stdout == "no captures\n"


@pytest.mark.parametrize("one", LEFT, ids=lambda one: one.media_type)
def test_a_capture_is_written_byte_for_byte(desk, one, tmp_path):
    assert desk("show", one.id).stdout_bytes == one.content
    file = tmp_path / "out"
    assert desk("show", one.id, "-o", str(file)).stdout_bytes == b""
    assert file.read_bytes() == one.content
    assert desk("show", one.id, "-o", "-").stdout_bytes == one.content


def test_what_is_not_there_is_named_and_no_file_is_made(desk, tmp_path):
    file = tmp_path / "out"
    said = desk("show", "none", "-o", str(file))
    assert "no capture 'none'" in str(said.exception)
    assert "no job 'none'" in str(desk("list", "none").exception)
    assert not file.exists()


def test_a_file_that_cannot_be_written_is_said(desk, tmp_path):
    said = desk("show", TEXT, "-o", str(tmp_path / "no" / "such" / "folder"))
    assert said.exit_code == 1
    assert "Could not open file" in said.output


def test_plain_text_is_shown_on_a_terminal(desk):
    code, shown, said = desk.on_a_terminal(TEXT)
    assert (code, shown.replace(b"\r\n", b"\n"), said) == (0, LEFT[0].content, "")


@pytest.mark.parametrize("id", [BYTES, CUT])
def test_what_could_upset_a_terminal_is_not_shown_there(desk, id):
    code, shown, said = desk.on_a_terminal(id)
    assert (code, shown) == (2, b"")
    assert "-o FILE" in said
