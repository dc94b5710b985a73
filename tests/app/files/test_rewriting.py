"""Files that are written anew: whole or as before, one writer at a time, links and pipes left what they are."""

import os
import threading
from pathlib import Path

import pytest

from perdure.app.files import rewriting as module
from perdure.app.runs import Result, Sink
from perdure.model.errors import CallerError
from perdure.model.states import State


def fill(path: Path, *numbers: int | None) -> None:
    with Sink(path) as sink:
        for number in numbers:
            sink.write(result(number))


def result(number: int | None) -> Result | None:
    if number is None:
        return None  # which nobody can write
    return Result(str(number), f"job-{number}", State.SUCCEEDED, number)


def keys(text: str) -> list[str]:
    return [line.partition('"key":"')[2].partition('"')[0] for line in text.splitlines()]


def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "out.jsonl"
    target.write_text("before")
    link = tmp_path / "link.jsonl"
    link.symlink_to("real/out.jsonl")
    fill(link, 1, 2)
    assert link.is_symlink()
    assert keys(target.read_text()) == ["1", "2"]
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["link.jsonl", "out.jsonl", "real"]
    (tmp_path / "new.jsonl").symlink_to("real/new.jsonl")
    fill(tmp_path / "new.jsonl", 3)
    assert keys((tmp_path / "real" / "new.jsonl").read_text()) == ["3"]


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    out = tmp_path / "out.jsonl"
    out.write_text("before")
    seen: list[tuple[str, list[str]]] = []
    fsync = os.fsync

    def synced(number: int) -> None:
        seen.append((out.read_text(), keys((tmp_path / "out.jsonl.part").read_text())))
        fsync(number)

    monkeypatch.setattr(module.os, "fsync", synced)
    fill(out, 1)
    assert seen == [("before", ["1"])]
    assert keys(out.read_text()) == ["1"]


def test_a_second_writer_is_told_at_once_and_the_first_one_s_file_is_whole(tmp_path):
    out = tmp_path / "out.jsonl"
    with Sink(out) as first:
        first.write(result(1))
        for path in (out, tmp_path / "." / "out.jsonl"):
            with pytest.raises(CallerError, match=r"another command is writing .*another file"):
                fill(path, 2)
        fill(tmp_path / "other.jsonl", 3)
    assert keys(out.read_text()) == ["1"]
    fill(out, 2)
    assert keys(out.read_text()) == ["2"]
    assert not list(tmp_path.glob("*.part"))


def test_a_part_that_was_renamed_while_it_was_opened_is_not_taken_for_ours(tmp_path, monkeypatch):
    out = tmp_path / "out.jsonl"
    lock = module.fcntl.flock
    first = Sink(out).__enter__()
    first.write(result(1))

    def late(number: int, how: int) -> None:
        monkeypatch.setattr(module.fcntl, "flock", lock)
        first.__exit__(None)  # renamed between the second one's opening and locking
        lock(number, how)

    monkeypatch.setattr(module.fcntl, "flock", late)
    with Sink(out) as second:
        assert keys(out.read_text()) == ["1"]
        second.write(result(2))
    assert keys(out.read_text()) == ["2"]


def test_a_file_that_is_not_finished_leaves_the_old_one_and_lets_the_next_writer_in(tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("before")
    with pytest.raises(AttributeError):
        fill(out, 1, None)
    assert out.read_text() == "before"
    assert keys((tmp_path / "out.jsonl.part").read_text()) == ["1"]
    fill(out, 2)
    assert keys(out.read_text()) == ["2"]


def test_folders_loops_and_what_may_not_be_written_are_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for path, words in (
        (tmp_path, "is a folder; name a file"),
        (tmp_path / "loop", "cannot be written"),
        (tmp_path / "none" / "out.jsonl", "cannot be written"),
        (Path("/dev/fd/987654"), "cannot be written"),
    ):
        with pytest.raises(CallerError, match=words):
            fill(path, 1)


def test_a_device_is_written_into_and_stays_what_it_is():
    fill(Path("/dev/null"), 1)
    assert Path("/dev/null").is_char_device()


def test_a_descriptor_of_our_own_goes_on_where_it_is(tmp_path):
    with (tmp_path / "shown.txt").open("w") as file:
        file.write("head\n")
        file.flush()
        fill(Path(f"/dev/fd/{file.fileno()}"), 1)
        file.write("tail\n")
    lines = (tmp_path / "shown.txt").read_text().splitlines()
    assert (lines[0], keys(lines[1]), lines[2]) == ("head", ["1"], "tail")


def test_a_pipe_is_opened_for_its_first_line_and_nobody_waits_without_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    fill(pipe)  # nobody reads, and nobody waits
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    with Sink(pipe) as sink:
        assert not sink.rewinds
        reader.start()
        sink.write(result(1))
        sink.flush()
    reader.join(20)
    assert keys(read[0]) == ["1"]
    assert pipe.is_fifo()
