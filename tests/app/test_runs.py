"""Runs through the App, with a worker at work, on both stores."""

import asyncio
import json
import threading
from collections import Counter
from pathlib import Path
from typing import TypedDict

import pytest

from perdure import App, CallerError, Item, PayloadRefused, StageError
from perdure.app.files.items import lively
from perdure.engine.batch import runs as runs_module, unattended
from perdure.engine.batch.item_jobs import NothingNow
from perdure.model.errors import NotChangeable, RunAborted, RunUnfinished, UnknownName
from perdure.model.operations import Retention
from perdure.model.runs import RunStatus
from perdure.model.states import State
from tests.engine.kit import until


class Works:
    """Two stages that keep a ledger of what they did; some items are broken."""

    def __init__(self, app: App) -> None:
        self.ledger: Counter[tuple[str, int]] = Counter()
        self.broken: set[int] = set()
        self._lock = threading.Lock()

        @app.stage(policy="datasets-once")
        def read(item, context):
            self._note("read", item["n"])
            context.usage(tokens_in=10, tokens_out=2, cost_usd=0.001)
            return item["n"]

        @app.stage(policy="datasets-once")
        def ask(n):
            self._note("ask", n)
            if n in self.broken:
                raise StageError("invalid_request", f"row {n} cannot be read")
            return n * 2

        self.pipe = app.pipeline("p", read, ask)

    def _note(self, stage: str, n: int) -> None:
        with self._lock:
            self.ledger[stage, n] += 1


@pytest.fixture
def works(app) -> Works:
    return Works(app)


def items(count: int):
    return ({"n": n} for n in range(count))


def test_a_run_goes_to_its_end_and_gives_its_results_in_order(app, works):
    works.broken = {3}
    with app.working(concurrency=8):
        run = works.pipe.run(items(40), name="batch")
        over = run.wait(wait_s=30)
        assert over.status is RunStatus.COMPLETED
        assert (over.counts.total, over.counts.succeeded, over.counts.failed) == (40, 39, 1)
        assert dict(over.kinds) == {"invalid_request": 1}
        assert (over.counts.tokens_in, over.counts.tokens_out) == (400, 80)
        assert over.counts.cost_usd == pytest.approx(0.04)
        found = list(run.results())
    assert [one.value for one in found] == [None if n == 3 else 2 * n for n in range(40)]
    broken = found[3]
    assert (broken.ok, broken.state, broken.error_kind) == (False, State.FAILED, "invalid_request")
    assert "row" not in (broken.error or "")
    assert {one.job_id for one in run.results(order="ended")} == {one.job_id for one in found}
    assert len(list(run.results(failed=False))) == 39
    assert app._session.opened.reader.audit() == []
    assert run.report().as_json()["counts"]["failed_by_kind"] == {"invalid_request": 1}


def test_an_item_of_a_run_may_have_options_of_its_own(app, works):
    items = [
        Item({"n": 1}, key="one", priority=3),
        {"n": 2, "id": "two"},
        Item({"n": 3, "id": "three"}),
    ]
    run = works.pipe.run(items, name="own", key="id")
    jobs = sorted(app.jobs.list(run="own"), key=lambda job: job.no)
    assert [(job.key, job.priority) for job in jobs] == [("one", 3), ("two", 0), ("three", 0)]
    assert [json.loads(job.payload_json)["n"] for job in jobs] == [1, 2, 3]
    again = works.pipe.run([Item({"n": 9}, key="one")], name="own", key="id")
    assert (again.fed.known, again.no) == (1, run.no)


@pytest.mark.parametrize("own", [{"owner": "ann"}, {"key": "k", "if_failed": "retry"}])
def test_what_is_the_runs_to_say_no_item_says(app, works, own):
    with pytest.raises(CallerError, match="an Item of a run cannot have"):
        works.pipe.run([Item({"n": 1}, **own)], name="own")


def test_a_nameless_run_whose_first_item_is_refused_is_not_made(app, works):
    with pytest.raises(PayloadRefused, match=r"^item 1 of the run: it has no field 'id'"):
        works.pipe.run(items(3), key="id")
    assert app.runs() == []
    skipped = []
    run = works.pipe.run(items(3), key="id", bad=lambda place, refused: skipped.append(place))
    assert (skipped, run.fed.items, run.fed.created) == ([0, 1, 2], 3, 0)
    assert works.pipe.run(items(3), key="n").fed.created == 3


def test_a_second_call_goes_on_and_repeats_nothing(app, works):
    run = works.pipe.run(items(10), name="batch")
    assert run.fed is not None
    with app.working(concurrency=4):
        again = works.pipe.run(items(25), name="batch")
        assert (again.id, again.fed.created, again.fed.known) == (run.id, 15, 10)
        assert again.wait(wait_s=30).counts.succeeded == 25
        third = works.pipe.run(items(25), name="batch")
        assert third.wait(wait_s=30).status is RunStatus.COMPLETED
        assert third.fed.created == 0
    assert set(works.ledger.values()) == {1}
    assert len(works.ledger) == 50


def test_results_are_written_as_lines_whole_or_not_at_all(app, works, tmp_path):
    works.broken = {1}
    path = tmp_path / "results.jsonl"
    with app.working(concurrency=4):
        run = works.pipe.run(items(3), failure_budget=1.0)
        assert run.write_results(path) == 2
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["result"] for one in lines] == [0, 4]
    assert set(lines[0]) == {"key", "job_id", "result"}
    assert [one.name for one in tmp_path.glob("results*")] == ["results.jsonl"]
    with pytest.raises(CallerError, match=r"nowhere.*cannot be written"):
        run.write_results(tmp_path / "nowhere" / "x.jsonl")


def test_a_broken_stage_aborts_the_run_after_the_first_checks(app, works):
    works.broken = set(range(10_000))
    with app.working(concurrency=4):
        run = works.pipe.run(items(1_000), failure_budget=0.1, check_every=50, sample_min=20)
        budget = r"the rate of failures is 100 %, the budget is 10 %"
        with pytest.raises(RunAborted, match=budget) as aborted:
            run.wait(wait_s=60)
    assert aborted.value.__notes__[0].endswith(f"perdure dead groups --run {run.no}")
    over = run.view()
    assert over.status is RunStatus.ABORTED
    assert over.counts.processed < 800
    assert over.counts.open == 1_000 - over.counts.processed
    with pytest.raises(RunAborted, match="raise the budget"):
        run.resume()
    works.broken = set()
    with app.working(concurrency=8):
        run.resume(failure_budget=1.0)
        assert run.wait(wait_s=60).counts.open == 0
    assert run.status is RunStatus.PARTIAL_SUCCESS or run.status is RunStatus.COMPLETED


def test_a_run_is_paused_resumed_and_cancelled(app, works):
    run = works.pipe.run(items(20))
    run.pause(reason="lunch")
    with app.working(concurrency=4):
        with pytest.raises(RunUnfinished, match=r"is paused after 0.3 s: 0 of 20 items"):
            run.wait(wait_s=0.3)
        run.cancel(reason="wrong file")
        assert run.wait(wait_s=30).counts.cancelled == 20
        assert run.status is RunStatus.CANCELLED
        with pytest.raises(NotChangeable):
            run.resume()
    assert works.ledger == Counter()
    assert app._session.opened.reader.audit() == []


def test_runs_are_found_and_listed(app, works):
    run = works.pipe.run([], name="nothing")
    assert run.status is RunStatus.COMPLETED
    assert list(run.results()) == []
    assert (
        app.get_run("nothing").id == app.get_run(str(run.no)).id == app.get_run(run.id).id == run.id
    )
    assert [one.name for one in app.runs(pipeline="p")] == ["nothing"]
    assert "nothing" in repr(run)
    assert {app.get_run(run.no), app.get_run("nothing")} == {run}
    with pytest.raises(CallerError, match=r"the name of a run is None; give"):
        app.get_run(None)
    with pytest.raises(UnknownName):
        app.get_run("other")


def test_with_an_owner_runs_of_others_are_unknown(app, works):
    hers = works.pipe.run([], name="nightly", owner="ann")
    his = works.pipe.run([], name="nightly", owner="bob")
    assert app.runs(owner="ann") == [hers]
    assert app.runs(owner="") == []
    for named in ("nightly", hers.id, hers.no):
        assert app.get_run(named, owner="ann") == hers
    assert app.get_run("nightly", owner="bob") == his
    for named in (hers.id, hers.no):
        with pytest.raises(UnknownName):
            app.get_run(named, owner="bob")


def test_a_run_can_be_sealed_by_another_hand(app, works):
    with app.working(concurrency=2):
        run = works.pipe.run(items(2), name="batch", seal=False)
        works.pipe.run(items(3), name="batch", seal=False)
        app.get_run("batch").seal()
        assert run.wait(wait_s=30).counts.succeeded == 3


def test_a_run_is_fed_with_one_key_for_all_its_items(app, works):
    works.pipe.run([{"n": 1, "id": "a"}], name="keyed", key="id")
    with pytest.raises(NotChangeable, match="was fed with the key 'id', and not with the key 'n'"):
        works.pipe.run([{"n": 1, "id": "a"}], name="keyed", key="n")
    for same in ("id", lambda item: item["id"]):  # nobody knows what a function gives
        assert works.pipe.run([{"n": 1, "id": "a"}], name="keyed", key=same).fed.known == 1
    works.pipe.run([], name="none yet", key="id")
    assert works.pipe.run(items(1), name="none yet", key="n").fed.created == 1


def test_who_waits_for_a_run_that_nobody_feeds_is_told(app, works, monkeypatch):
    """It had no items left to work on, was not sealed, and was waited for for ever."""
    monkeypatch.setattr(runs_module, "FEEDER_SILENT_S", 0.0)
    said = r"run 'batch' is not sealed and fed by nobody since .* seal \d+"
    run = works.pipe.run(items(2), name="batch", seal=False)
    with pytest.raises(RunUnfinished, match=r"is running after 0.05 s: 0 of 2 items"):
        run.wait(wait_s=0.05)  # somebody may work on them
    with app.working(concurrency=2), pytest.raises(RunUnfinished, match=said):
        run.wait()
    with pytest.raises(RunUnfinished, match=said):
        asyncio.run(run.wait_async())
    for order in ("items", "ended"):
        results = run.results(order=order)
        assert {next(results).ok for _ in range(2)} == {True}
        with pytest.raises(RunUnfinished, match=said):
            next(results)
    app.get_run("batch").seal()
    assert run.wait(wait_s=30).counts.succeeded == 2


def test_calls_of_stages_that_name_an_upstream_are_counted_apart(app):
    app.upstream("api")
    plain = app.stage(name="plain")(lambda item: item)
    call = app.stage(name="call", upstream="api")(lambda item: item)
    pipe = app.pipeline("calling", plain, call)
    with app.working(concurrency=4):
        counts = pipe.run(items(5)).wait(wait_s=30).counts
    assert (counts.attempts, counts.calls) == (10, 5)


LINES = '\ufeff{"n":1}\n\n{"n":2}\r\n{"n":3}'
ROWS = '\ufeffn,text\n1,"a, ""b"""\n\n2,ü\n3,\n'


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.jsonl", LINES, [{"n": 1}, {"n": 2}, {"n": 3}]),
        ("a.ndjson", LINES, [{"n": 1}, {"n": 2}, {"n": 3}]),
        (
            "a.csv", ROWS,
            [{"n": "1", "text": 'a, "b"'}, {"n": "2", "text": "ü"}, {"n": "3", "text": ""}],
        ),
        ("a.tsv", "n\tm\n1\t2\n", [{"n": "1", "m": "2"}]),
        ("empty.csv", "", []),
        ("empty.jsonl", "", []),
    ],
)  # fmt: skip
def test_items_come_from_files(tmp_path, name, text, expected):
    app = App(f"sqlite:///{tmp_path / 'p.db'}")
    pipe = app.pipeline("p", app.stage(name="same")(lambda item: item))
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    with app.working(concurrency=2):
        run = pipe.run(path)
        run.wait(wait_s=30)
        assert [one.value for one in run.results()] == expected
    app.close()


class Numbered(TypedDict):
    n: int | str


def number_of(item: Numbered) -> int | str:
    return item["n"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "a.jsonl",
            b'{"n":1}\n{"n":\n',
            r"item 2 of the run: a.jsonl line 2 is no JSON value \(expecting value, column 6\)",
        ),
        (
            "a.jsonl",
            b'{"n":1}\n\n\n\n{"n":[]}\n',
            r"item 2 of the run: a.jsonl line 5: the item does not fit",
        ),
        (
            "a.csv",
            b"m\n\n1\n",
            r"item 1 of the run: a.csv line 3: the item does not fit stage 'same'",
        ),
        ("a.jsonl", b'"\xff\xfe"\n', r"a.jsonl line 1 is not UTF-8; .* iconv -f ENCODING -t UTF-8"),
        ("a.jsonl", '{"n":1}\n'.encode("utf-16"), r"a.jsonl line 1 is not UTF-8; .* -f UTF-16 -t"),
        ("a.jsonl", b'{"n":1}\n\0\0\0\n', r"a.jsonl line 2 is no JSON value"),
        ("a.csv", "n\n1\n".encode("utf-16"), r"a.csv: its head is not UTF-8; .* -f UTF-16 -t"),
        ("a.csv", b"\xff\n1\n", r"a.csv: its head is not UTF-8; .* -f ENCODING -t"),
        ("a.csv", b"n,m\n1,2\n3\n", r"a.csv line 3 has 1 fields, its head 2"),
        ("a.csv", b'n\n"open\n', r"a.csv line \d: "),
        (
            "a.csv",
            b"n\n\xff\n",
            r"item 1 of the run: a.csv line 2 is not UTF-8; .* with or without",
        ),
        (
            "a.jsonl",
            b'"' + b"x" * 9_000_000 + b'"\n',
            r"a.jsonl line 1 has more than 8388608 bytes",
        ),
        ("a.csv", b"n,n\n1,2\n", r"two columns have the same name"),
        ("a.csv", b'"n', r"a.csv: its head cannot be read"),
        (
            "a.txt",
            b"",
            r"a.txt: items are read from JSON lines and CSV, and the ending '.txt' is of neither",
        ),
        (None, b"", r"missing.jsonl: there is no such file"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(tmp_path, name, content, words):
    app = App(f"sqlite:///{tmp_path / 'p.db'}")
    pipe = app.pipeline("p", app.stage(name="same")(number_of))
    path = Path(tmp_path / (name or "missing.jsonl"))
    if name is not None:
        path.write_bytes(content)
    with pytest.raises((CallerError, PayloadRefused), match=words):
        pipe.run(path)
    app.close()


def test_bad_lines_can_be_skipped(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'p.db'}")
    pipe = app.pipeline("p", app.stage(name="same")(lambda item: item))
    path = tmp_path / "a.jsonl"
    path.write_text("1\n{\n3\n")
    heard = []
    run = pipe.run(path, bad=lambda at, why: heard.append((at, str(why))))
    assert (run.fed.created, run.fed.skipped, [at for at, _ in heard]) == (2, 1, [1])
    app.close()


@pytest.mark.parametrize("items", [7, b"abc", bytearray(b"abc"), {"a": 1}, None])
def test_what_is_no_series_of_items_is_refused(tmp_path, items):
    app = App(f"sqlite:///{tmp_path / 'p.db'}")
    pipe = app.pipeline("p", app.stage(name="same")(lambda item: item))
    with pytest.raises(CallerError, match=f"items are {type(items).__name__}; pass an iterable"):
        pipe.run(items)
    with pytest.raises(CallerError, match="backlog_max is 0"):
        pipe.run([], backlog_max=0)
    with pytest.raises(CallerError, match="a run cannot be called '7'"):
        pipe.run([], name="7")
    assert app.runs() == []
    app.close()


def test_a_completed_run_stays_so_when_nothing_comes_in_after_all(app, works):
    run = works.pipe.run([], name="batch")
    assert run.status is RunStatus.COMPLETED
    with pytest.raises(PayloadRefused):
        works.pipe.run([float("nan")], name="batch")
    assert run.status is RunStatus.COMPLETED


def test_who_waits_for_a_run_on_which_nobody_works_is_told(url, monkeypatch):
    monkeypatch.setattr(unattended, "UNATTENDED_S", 0.02)
    told = []

    def hear(event):
        if event.name == "run_unattended":
            told.append(event.fields["reason"])
            run.cancel()

    app = App(url, observers=[hear])
    run = app.pipeline("p", app.stage(name="one")(lambda item: item)).run([1, 2])
    assert list(run.results()) == []
    assert "no worker is at work on this store" in told[0]
    app.close()


def test_a_wait_can_be_given_up(app, works):
    run = works.pipe.run(items(1))

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(run.wait_async(), 0.3)
        with pytest.raises(RunUnfinished, match=r"is running after 0.2 s: 0 of 1 items"):
            await run.wait_async(wait_s=0.2)
        with app.working(concurrency=1):
            assert (await run.wait_async(wait_s=30)).status is RunStatus.COMPLETED

    asyncio.run(main())


def test_results_that_were_pruned_are_missed(app, works, tmp_path):
    with app.working(concurrency=2):
        run = works.pipe.run(items(3))
        run.wait(wait_s=30)
    app._session.opened.control.prune(Retention(succeeded_s=0.0), limit=100)
    with pytest.raises(CallerError, match=r"3 of 3 results of run .* are gone"):
        run.write_results(tmp_path / "results.jsonl")
    assert list(tmp_path.glob("results*")) == []


def test_a_paused_run_is_resumed_whatever_has_failed_so_far(app, works):
    works.broken = set(range(200))
    with app.working(concurrency=4):
        run = works.pipe.run(items(19), seal=False, failure_budget=0.1)  # too few to be aborted
        until(lambda: run.view().counts.failed == 19, "all have failed")
        run.pause()
        run.resume(failure_budgets={"timeout": 0.5}, count_rate_limits=False)
        assert run.status is RunStatus.RUNNING
        run.seal()
        assert run.wait(wait_s=30).status is RunStatus.FAILED


def test_a_source_that_is_silent_keeps_nobody_waiting():
    gate = threading.Event()

    def source():
        yield 1
        gate.wait(20)
        yield 2

    reading = lively(source(), silence_s=0.01)
    assert next(reading) == 1
    assert isinstance(next(reading), NothingNow)
    gate.set()
    assert [one for one in reading if not isinstance(one, NothingNow)] == [2]


def test_a_source_that_fails_on_its_thread_fails_here():
    def source():
        yield 1
        raise OSError("the pipe broke")

    reading = lively(source())
    with pytest.raises(OSError, match="the pipe broke"):
        list(reading)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_source_that_fails_in_a_way_of_its_own_keeps_nobody_waiting():
    def source():
        yield 1
        raise KeyboardInterrupt

    with pytest.raises(CallerError, match="the items could not be read to their end"):
        list(lively(source()))
    for one in threading.enumerate():  # its last word is this test's, not the next one's
        if one.name == "perdure-items":
            one.join(30)
