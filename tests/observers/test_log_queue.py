"""The queue of the log: nobody who logs waits for whoever reads, and what could not be written is told."""

import io
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perdure.model.events import Event, EventName
from perdure.model.limits import LOG_LINES_MAX
from perdure.observers import log_queue as module
from perdure.observers.event_lines import JsonFormatter, TextFormatter
from perdure.observers.log import log_event
from perdure.observers.log_queue import LogQueue, LogStream
from tests.engine.kit import until

MANY = 2_000  # lines, which no pipe takes unless somebody reads


def tell(*jobs: int) -> None:
    for job in jobs:
        log_event(Event(EventName.JOB_FAILED, {"job_id": f"job-{job:05}", "reason": "x" * 200}))


def jobs_in(lines: list[str]) -> list[int]:
    return [int(one["job_id"][4:]) for one in map(json.loads, lines) if "job_id" in one]


def dropped_in(lines: list[str]) -> list[int]:
    return [one["dropped"] for one in map(json.loads, lines) if one["event"] == "lines_dropped"]


# -- a stream that takes nothing ---------------------------------------------------------


def test_whoever_logs_goes_on_and_what_was_dropped_is_counted_and_told(queue_to, pipe):
    queue = queue_to(LogStream(pipe.stream), lines_max=50)
    tell(*range(MANY))
    dropped = queue.dropped
    assert 0 < dropped < MANY
    pipe.read()
    queue.flush()
    lines = pipe.lines()
    jobs = jobs_in(lines)
    assert len(jobs) == MANY - dropped
    assert jobs == sorted(jobs)
    assert dropped_in(lines) == [dropped]


def test_a_direct_way_to_the_stream_keeps_whoever_logs_waiting(log, pipe):
    """The broken twin of the one above."""
    log.handlers[:] = [logging.StreamHandler(pipe.stream)]
    log.propagate = False
    worker = threading.Thread(target=tell, args=range(MANY), daemon=True)
    worker.start()
    until(lambda: LogStream(pipe.stream).stuck, "the pipe is full")
    assert worker.is_alive()  # and would be until tomorrow
    pipe.read()
    worker.join()
    assert len(pipe.lines()) == MANY


def test_lines_are_taken_again_and_what_is_dropped_later_is_told_anew(queue_to, pipe):
    queue = queue_to(LogStream(pipe.stream), lines_max=50)
    tell(*range(MANY))
    first = queue.dropped
    pipe.read()
    queue.flush()
    tell(*range(MANY, MANY + 20))
    queue._count_dropped(7)
    tell(MANY + 20)
    queue.flush()
    lines = pipe.lines()
    assert dropped_in(lines) == [first, 7]
    assert jobs_in(lines)[-21:] == list(range(MANY, MANY + 21))


def test_an_end_does_not_wait_for_it(queue_to, pipe):
    queue = queue_to(LogStream(pipe.stream), lines_max=MANY)
    tell(*range(MANY))
    until(lambda: LogStream(pipe.stream).stuck, "the pipe is full")
    queue.flush()
    queue.flush()  # it knows by now, and does not wait at all
    queue.close()


def test_a_queue_that_somebody_has_closed_goes_on(queue_to):
    written = io.StringIO()
    queue = queue_to(LogStream(written))
    tell(1)
    queue.close()  # as logging.config.dictConfig does with every handler there is
    assert jobs_in(written.getvalue().splitlines()) == [1]
    tell(2)
    queue.flush()
    assert jobs_in(written.getvalue().splitlines()) == [1, 2]


def test_a_stream_that_others_do_not_wait_for_is_waited_for(queue_to, pipe):
    os.set_blocking(pipe.stream.fileno(), False)
    queue = queue_to(LogStream(pipe.stream), lines_max=MANY)
    tell(*range(MANY))
    until(lambda: LogStream(pipe.stream).stuck, "the pipe is full")
    pipe.read()
    queue.flush()
    assert jobs_in(pipe.lines()) == list(range(MANY))


# -- a thread that has no time -----------------------------------------------------------


class Busy(LogStream):
    """A stream that takes lines, and a thread that gets to write them only when somebody asks how the stream is."""

    def __init__(self, stream: io.StringIO) -> None:
        super().__init__(stream)
        self.asked = threading.Event()

    @property
    def stuck(self) -> bool:
        self.asked.set()
        return False

    def write(self, lines):
        assert self.asked.wait(60)
        return super().write(lines)


class Hasty(LogQueue):
    """The broken twin: what is full is full."""

    def _await_room(self) -> bool:
        return False


@pytest.mark.parametrize(("kind", "loses"), [(LogQueue, False), (Hasty, True)])
def test_nothing_is_dropped_while_the_stream_takes_lines(queue_to, kind, loses):
    written = io.StringIO()
    stream = Busy(written)
    queue = queue_to(stream, kind=kind, lines_max=10)
    tell(*range(500))
    stream.asked.set()
    queue.flush()
    assert (queue.dropped > 0) is loses
    assert (jobs_in(written.getvalue().splitlines()) == list(range(500))) is not loses


def test_the_queue_takes_as_many_as_the_limit_says_and_not_one_more(queue_to, pipe, monkeypatch):
    monkeypatch.setattr(LogQueue, "_start", lambda _: None)  # nobody takes any out
    monkeypatch.setattr(LogStream, "stuck", True)
    queue = queue_to(LogStream(pipe.stream))
    record = logging.makeLogRecord({})
    for _ in range(LOG_LINES_MAX):
        queue.emit(record)
    assert queue.dropped == 0
    queue.emit(record)
    assert queue.dropped == 1


def test_a_thread_that_cannot_be_had_is_asked_for_again(queue_to, monkeypatch):
    start, asked = threading.Thread.start, []

    def refuse(thread: threading.Thread) -> None:
        asked.append(thread)
        if len(asked) < 3:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    written = io.StringIO()
    queue = queue_to(LogStream(written))
    tell(1, 2, 3, 4)
    queue.flush()
    assert len(asked) == 3
    assert jobs_in(written.getvalue().splitlines()) == [1, 2, 3, 4]


def test_a_thread_that_has_died_has_a_successor(queue_to, pipe):
    queue = queue_to(LogStream(pipe.stream), lines_max=10)
    tell(0)
    queue._queue.put(module._Mark(last=True))
    queue._thread.join()
    pipe.read()
    tell(*range(1, 40))
    queue.flush()
    assert jobs_in(pipe.lines()) == list(range(40))


# -- a stream that is gone ---------------------------------------------------------------


def test_a_pipe_that_nobody_will_ever_read_costs_lines_and_nothing_else(queue_to, pipe):
    queue = queue_to(LogStream(pipe.stream))
    pipe.hang_up()
    tell(*range(500))
    queue.flush()
    assert queue.dropped == 500


def test_lines_lost_on_a_full_disk_are_told_when_there_is_room(queue_to, tmp_path):
    log_file = tmp_path / "log"
    with Path("/dev/full").open("w") as stream, log_file.open("w") as room:
        queue = queue_to(LogStream(stream))
        tell(*range(30))
        queue.flush()
        assert queue.dropped == 30
        os.dup2(room.fileno(), stream.fileno())
        tell(30, 31)
        queue.flush()
        thread = queue._thread
        queue.close()
        thread.join()
    lines = log_file.read_text().splitlines()
    assert (jobs_in(lines), dropped_in(lines)) == ([30, 31], [30])


def test_no_stream_at_all_costs_lines_and_nothing_else(queue_to):
    queue = queue_to(LogStream(None))
    tell(1, 2)
    queue.flush()
    assert queue.dropped == 2


def test_a_line_after_a_torn_one_begins_anew(tmp_path, monkeypatch):
    log_file, write = tmp_path / "log", os.write
    room = [10, 0]  # bytes, then none

    def scarce(fd: int, text: bytes) -> int:
        if not room:
            return write(fd, text)
        left = room.pop(0)
        if not left:
            raise OSError(28, "No space left on device")
        return write(fd, text[:left])

    with log_file.open("w") as file:
        stream = LogStream(file)
        monkeypatch.setattr(os, "write", scarce)
        assert stream.write(["a line that is torn"]) == 1
        assert stream.write(["whole", "lines"]) == 0
    assert log_file.read_text() == "a line tha\nwhole\nlines\n"


# -- lines -------------------------------------------------------------------------------


def test_a_write_ends_with_a_line_and_is_no_longer_than_a_pipe_takes_at_once():
    lines = ["x" * length for length in (10, 4_000, 90, 4_090, 5, 9_000, 1, 2)]
    chunks = list(module._chunks(lines))
    assert b"".join(chunk for chunk, _ in chunks).decode().splitlines() == lines
    assert sum(count for _, count in chunks) == len(lines)
    for chunk, count in chunks:
        assert chunk.endswith(b"\n")
        assert count == 1 or len(chunk) <= 4_096


def test_lines_of_many_threads_are_all_there_and_whole(queue_to, pipe):
    pipe.read()
    queue = queue_to(LogStream(pipe.stream))
    threads = [
        threading.Thread(target=tell, args=range(100 * one, 100 * one + 100)) for one in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.flush()
    assert sorted(jobs_in(pipe.lines())) == list(range(800))


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_what_cannot_be_written_is_told_and_costs_no_other_line(queue_to, log, formatter):
    written = io.StringIO()
    queue = queue_to(LogStream(written), formatter)
    tell(1)
    log.warning("%d jobs", "no")
    tell(2)
    queue.flush()
    first, bad, last = written.getvalue().splitlines()
    assert "job-00001" in first
    assert "a log line cannot be written: TypeError; it is '%d jobs'" in bad
    assert "job-00002" in last


def test_json_has_every_line_and_text_has_sums(queue_to):
    """R109: a machine is told of each retry."""
    for_machines, for_people = io.StringIO(), io.StringIO()
    queue_to(LogStream(for_machines))
    queue_to(LogStream(for_people), TextFormatter(), sums_up=True)
    tell(*range(5_000))
    for one in logging.getLogger("perdure").handlers:
        one.flush()
    assert jobs_in(for_machines.getvalue().splitlines()) == list(range(5_000))
    lines = for_people.getvalue().splitlines()
    sums = [line for line in lines if "more like it" in line]
    summed = sum(int(line.partition("… and ")[2].split()[0].replace(",", "")) for line in sums)
    assert len(lines) - len(sums) + summed == 5_000
    assert len(lines) - len(sums) <= 3 * len(sums)


def test_a_sum_is_written_when_its_second_is_over_though_nothing_more_comes(queue_to):
    written = io.StringIO()
    queue_to(LogStream(written), TextFormatter(), sums_up=True)
    tell(*range(9))
    until(lambda: "… and 6 more like it" in written.getvalue(), "the sum is written")


# -- processes ---------------------------------------------------------------------------


def test_a_forked_child_has_a_queue_and_a_thread_of_its_own(queue_to, pipe):
    pipe.read()
    queue = queue_to(LogStream(pipe.stream))
    tell(1)
    queue.flush()
    child = os.fork()
    if child == 0:
        tell(2)
        queue.flush()
        os._exit(0)
    os.waitpid(child, 0)
    tell(3)
    queue.flush()
    assert jobs_in(pipe.lines()) == [1, 2, 3]


def test_what_its_parent_has_accepted_is_not_written_by_a_forked_child(queue_to, pipe):
    queue = queue_to(LogStream(pipe.stream), lines_max=MANY)
    tell(*range(MANY))  # more than the pipe takes: some are still ours to write
    until(lambda: LogStream(pipe.stream).stuck, "the pipe is full")
    child = os.fork()
    if child == 0:
        tell(90_001)
        os._exit(not (queue._thread.is_alive() and queue.dropped == 0))
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0
    pipe.read()
    queue.flush()
    # A pipe that is full for many lines may have room for the child's own.
    told = [job for job in jobs_in(pipe.lines()) if job != 90_001]
    assert told == list(range(MANY))


ENDING = """
import sys, threading, time
from perdure.engine.worker.shutdown import exit_at_last
from perdure.model.events import Event, EventName
from perdure.observers.log import log_event, write_logs

write_logs(form=sys.argv[1], level="INFO")
for job in range(3_000):
    log_event(Event(EventName.JOB_FAILED, {"job_id": f"job-{job:05}", "reason": "x" * 200}))
"""
ENDS = {
    "by itself": "",
    "of an exception": "raise ValueError('odd')",
    "after others closed it": "import logging.config\nlogging.config.dictConfig({'version': 1})\n"
    "logging.getLogger('perdure').disabled = False\n"
    "log_event(Event(EventName.JOB_FAILED, {'job_id': 'job-03000'}))",
    "for certain": "exit_at_last(3, after_s=0.0)\nthreading.Event().wait()",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_ends_has_written_what_it_accepted(end, tmp_path):
    script = tmp_path / "ending.py"
    script.write_text(ENDING + ENDS[end])
    command = [sys.executable, str(script), "json"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=100, check=False)
    # A traceback comes in pieces, and a line of the log between two of them: it is whole, but begins behind the first.
    told = [line.partition('{"time"') for line in done.stderr.splitlines()]
    lines = [begin + rest for _, begin, rest in told if begin]
    assert jobs_in(lines) == list(range(3_000 + (end == "after others closed it")))


def test_a_process_ends_though_nobody_reads_what_it_writes(tmp_path):
    script = tmp_path / "ending.py"
    script.write_text(ENDING)
    with subprocess.Popen([sys.executable, str(script), "json"], stderr=subprocess.PIPE) as process:
        assert process.wait(timeout=100) == 0
        first = process.stderr.readline()
    assert jobs_in([first.decode()]) == [0]


def test_a_process_without_standard_error_works(tmp_path):
    script = tmp_path / "ending.py"
    script.write_text(ENDING + f"open({str(tmp_path / 'done')!r}, 'w')")
    command = f'exec "{sys.executable}" "{script}" auto 2>&-'
    subprocess.run(["/bin/sh", "-c", command], timeout=100, check=True)
    assert (tmp_path / "done").exists()
