"""Threads of our own: none is started for nothing, none is waited for, and none outlives its pool."""

import gc
import subprocess
import sys
import threading

import pytest

from perdure.engine.attempt.threads import NoThread, Pool
from tests.engine.kit import until


def living(name: str) -> int:
    return sum(one.name.startswith(name) for one in threading.enumerate())


def test_a_call_is_answered_with_what_it_returns_or_raises():
    pool = Pool(2, "pool-answers")
    assert pool.submit(divmod, 7, 2).result(20) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 7, 0).result(20)
    with pytest.raises(RuntimeError, match="StopIteration"):
        pool.submit(next, iter(())).result(20)
    with pytest.raises(SystemExit):
        pool.submit(sys.exit, 3).result(20)
    assert pool.submit(int, "11", base=2).result(20) == 3


def test_a_thread_that_is_free_is_used_before_another_is_started():
    pool = Pool(8, "pool-reused")
    for number in range(100):
        assert pool.submit(abs, -number).result(20) == number
    assert living("pool-reused") == 1


def test_there_are_never_more_than_so_many_and_the_rest_waits_its_turn():
    pool, gate, late = Pool(2, "pool-full"), threading.Event(), []
    taken = [pool.take(lambda: gate.wait(30), lambda: late.append(1)) for _ in range(5)]
    assert [waits for _, waits in taken] == [False, False, True, True, True]
    assert living("pool-full") == 2
    assert taken[4][0].cancel()
    gate.set()
    assert [future.result(20) for future, _ in taken[:4]] == [True] * 4
    assert late == [1, 1]  # those which had to wait; one was cancelled
    until(lambda: not pool.take(lambda: None)[1], "a thread is free again")


def test_the_threads_of_a_pool_end_when_nobody_has_it_any_more():
    pool = Pool(3, "pool-dropped")
    gate = threading.Barrier(3)
    for future in [pool.submit(gate.wait, 20) for _ in range(3)]:
        future.result(20)
    assert living("pool-dropped") == 3
    del pool, future
    gc.collect()
    until(lambda: living("pool-dropped") == 0, "they have ended")


def test_without_a_single_thread_a_call_is_refused_and_with_one_it_waits(monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    gate, pool = threading.Event(), Pool(2, "pool-refused")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NoThread, match="can't start new thread"):
            pool.submit(abs, 1)
    busy = pool.submit(gate.wait, 30)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        late, waits = pool.take(lambda: 7)
    assert waits
    gate.set()
    assert (busy.result(20), late.result(20)) == (True, 7)


PROGRAM = """
import threading
from perdure.engine.attempt.threads import Pool
{other}
pool = Pool(1, "stuck")
begun = threading.Event()
pool.submit(lambda: (begun.set(), threading.Event().wait()))
begun.wait()
print("the end", flush=True)
"""


def ended(program: str, within_s: float) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=within_s,
        check=True,
    )
    return done.stdout


def test_a_call_that_never_ends_does_not_keep_the_process():
    assert ended(PROGRAM.format(other=""), 30) == "the end\n"


def test_in_an_executor_it_would():
    other = "from concurrent.futures import ThreadPoolExecutor as Pool"
    program = PROGRAM.format(other=other).replace('Pool(1, "stuck")', "Pool(1)")
    with pytest.raises(subprocess.TimeoutExpired):
        ended(program, 2)
