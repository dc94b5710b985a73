"""Raw output: taken, cut, kept beside its attempt whatever becomes of that, and told to nobody."""

import asyncio
import json
import threading
import tracemalloc
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from perdure.engine.attempt.captures import CaptureFactory, RawOutput, aside, aside_of
from perdure.engine.attempt.context import AttemptNotes, Context
from perdure.engine.attempt.stage_process_messages import StageCaptured, frame, read_said
from perdure.engine.attempt.stage_processes import StageProcessPool
from perdure.engine.attempt.threads import Threads
from perdure.engine.run import Stopping, run
from perdure.engine.stages import Stage
from perdure.engine.upkeep import prune
from perdure.engine.upkeep.prune import Prune
from perdure.engine.worker.pump import Finished
from perdure.model.errors import (
    CallerError,
    OutputInvalid,
    OutputRefused,
    OutputTruncated,
    StageError,
    StoreUnavailable,
)
from perdure.model.jobs import Capture
from perdure.model.limits import CAPTURE_BYTES_MAX, CAPTURES_MAX, NAME_CHARS_MAX
from perdure.model.operations import Retention
from perdure.model.outcomes import Evidence, Interrupted, Lost, Raised, Returned, TimedOut
from perdure.testing import VirtualClock
from perdure.testing.store_contract.attempt_ends import success
from tests.engine import plays
from tests.engine.kit import DONE, PLAIN, Shop, claim_of, stage

SECRET = "sk-ant-a-customers-own-words"


def context(notes: AttemptNotes | None = None) -> Context:
    return Context(
        "j", "p", "s", "ann", None, 1, 2, 3, "k", None, "r", "a", notes or AttemptNotes()
    )


def unfit(raw: object, message: str = "no total") -> StageError:
    """An error of ours that has the output with it."""
    error = StageError("invalid_output", message)
    error.raw = raw  # type: ignore[attr-defined]
    return error


def capture(number: int = 1, content: bytes = b"raw", *, kept_s: float | None = None) -> Capture:
    id = f"00000000-0000-7000-8000-{number:012d}"
    return Capture(id, "raw", "text/plain", content, len(content), kept_s)


# -- taking ------------------------------------------------------------------------------

TAKEN = [
    ("so", None, "text/plain; charset=utf-8", b"so"),
    ("", None, "text/plain; charset=utf-8", b""),
    ("naïve\x00", None, "text/plain; charset=utf-8", "naïve\x00".encode()),
    ("half \ud800 of it", None, "text/plain; charset=utf-8", b"half ? of it"),
    (b"\x00\xff", None, "application/octet-stream", b"\x00\xff"),
    ("{", "application/json", "application/json", b"{"),
]


@pytest.mark.parametrize(("raw", "media_type", "kept_type", "content"), TAKEN)
def test_output_is_kept_as_it_is_with_what_it_is(raw, media_type, kept_type, content):
    notes = AttemptNotes()
    context(notes).capture(raw, media_type=media_type)
    assert notes.asides == (RawOutput("raw", kept_type, content, len(content)),)


LENGTHS = [CAPTURE_BYTES_MAX - 1, CAPTURE_BYTES_MAX, CAPTURE_BYTES_MAX + 1, 3 * CAPTURE_BYTES_MAX]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("raw", ["a", b"a"])
def test_what_is_too_long_is_cut_and_says_how_long_it_was(raw, length):
    found = aside(raw * length, "raw", None)
    assert (len(found.content), found.bytes_whole) == (min(length, CAPTURE_BYTES_MAX), length)


@pytest.mark.parametrize("shift", range(4))
def test_a_text_is_cut_between_two_characters(shift):
    raw = "a" * shift + "🙂" * CAPTURE_BYTES_MAX
    found = aside(raw, "raw", None)
    assert raw.startswith(found.content.decode())
    assert CAPTURE_BYTES_MAX - 4 < len(found.content) <= CAPTURE_BYTES_MAX
    assert found.bytes_whole == len(raw.encode())


def test_a_huge_text_is_never_there_twice():
    raw = "ü" * 8_000_000
    tracemalloc.start()
    try:
        found = aside(raw, "raw", None)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.bytes_whole == 16_000_000
    assert peak_bytes < 6 * CAPTURE_BYTES_MAX


WRONG = [
    (lambda c: c.capture(5), "raw is of type int"),
    (lambda c: c.capture(None), "raw is of type NoneType"),
    (lambda c: c.capture({"text": SECRET}), "raw is of type dict"),
    (lambda c: c.capture(bytearray(SECRET.encode())), "raw is of type bytearray"),
    (lambda c: c.capture(SECRET, kind=5), "kind is of type int"),
    (lambda c: c.capture(SECRET, kind=""), "kind is ''"),
    (lambda c: c.capture(SECRET, kind=" a"), "kind is ' a'"),
    (lambda c: c.capture(SECRET, kind="a\nb"), "no space at its ends"),
    (lambda c: c.capture(SECRET, kind="a\ud800"), "printable"),
    (lambda c: c.capture("a", kind=(SECRET + " ") * 10), "kind has 290 characters"),
    (lambda c: c.capture(SECRET, media_type="t" * (NAME_CHARS_MAX + 1)), "media_type has 101"),
    (lambda c: c.capture(SECRET, media_type=b"text/plain"), "media_type is of type bytes"),
]


@pytest.mark.parametrize(("call", "words"), WRONG)
def test_what_cannot_be_kept_is_refused_without_a_word_of_it(call, words):
    notes = AttemptNotes()
    with pytest.raises(CallerError) as refused:
        call(context(notes))
    assert words in str(refused.value)
    assert SECRET not in str(refused.value)
    assert notes.asides == ()


def test_the_longest_name_is_not_too_long():
    notes = AttemptNotes()
    context(notes).capture("a", kind="k" * NAME_CHARS_MAX, media_type="t" * NAME_CHARS_MAX)
    assert len(notes.asides) == 1


def test_an_attempt_keeps_its_first_ones_and_its_last():
    notes = AttemptNotes()
    for number in range(1000):
        context(notes).capture(str(number) * CAPTURE_BYTES_MAX)
    kept = [one.content[:3] for one in notes.asides]
    assert kept == [b"000", b"111", b"222", b"999"]
    assert len(kept) == CAPTURES_MAX
    assert sum(len(one.content) for one in notes.asides) <= CAPTURES_MAX * CAPTURE_BYTES_MAX


def test_nothing_is_kept_or_told_after_the_end():
    heard: list[object] = []
    notes = AttemptNotes(tell=heard.append)
    context(notes).capture("before")
    notes.end()
    context(notes).capture("after")
    notes.keep_failed_output(unfit("after"))
    assert [one.content for one in notes.asides] == [b"before"]
    assert heard == list(notes.asides)


def test_a_word_that_is_being_told_comes_before_the_end():
    """Else a child would say it in the middle of the next job."""
    order: list[str] = []
    telling, go_on = threading.Event(), threading.Event()

    def tell(said: object) -> None:
        telling.set()
        go_on.wait(20)
        order.append("told")

    notes = AttemptNotes(tell=tell)
    speaker = threading.Thread(target=lambda: context(notes).capture("raw"))
    ender = threading.Thread(target=lambda: (notes.end(), order.append("ended")))
    speaker.start()
    telling.wait(20)
    ender.start()
    go_on.set()
    speaker.join(20)
    ender.join(20)
    assert order == ["told", "ended"]


def test_many_threads_may_capture_at_once():
    notes = AttemptNotes()
    threads = [
        threading.Thread(target=lambda: [context(notes).capture("a") for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(notes.asides) == CAPTURES_MAX


# -- what did not pass -------------------------------------------------------------------


def raised_from(cause: BaseException | None, error: Exception) -> Exception:
    error.__cause__ = cause
    return error


class Foreign(Exception):
    raw = SECRET


def foreign_with_raw() -> Exception:
    error = ValueError("no total")
    error.raw = SECRET  # type: ignore[attr-defined]
    return error


class Ours(StageError):
    @property
    def raw(self) -> str:
        raise AssertionError("somebody's code")


FOUND = [
    (OutputInvalid("$", "no JSON", raw="{"), b"{"),
    (OutputTruncated("$", "it ends", raw=b"[1,"), b"[1,"),
    (unfit("{"), b"{"),
    (unfit(b"\xff"), b"\xff"),
    (raised_from(unfit("{"), ValueError("wrapped")), b"{"),
    (raised_from(unfit("inner"), unfit("outer")), b"outer"),
    (raised_from(unfit("inner"), StageError("invalid_output", "none itself")), b"inner"),
]
NOT_FOUND = [
    StageError("invalid_output", "no total"),
    OutputRefused("$", "refused"),  # there is no output
    unfit(5),
    unfit(b""),
    unfit(None),
    unfit({"text": SECRET}),
    Foreign(),
    foreign_with_raw(),
    raised_from(foreign_with_raw(), StageError("invalid_output", "wrapped")),
    Ours("invalid_output", "no total"),
]


@pytest.mark.parametrize(("error", "content"), FOUND)
def test_an_error_of_ours_brings_the_output_that_did_not_pass(error, content):
    found = aside_of(error)
    assert found is not None
    assert (found.kind, found.content) == ("invalid_output", content)


@pytest.mark.parametrize("error", NOT_FOUND, ids=repr)
def test_nothing_is_taken_from_the_errors_of_others(error):
    assert aside_of(error) is None


def test_a_chain_is_followed_only_so_far():
    error: Exception = unfit("far away")
    for _ in range(10):
        error = raised_from(error, ValueError("wrapped"))
    assert aside_of(error) is None
    loop = raised_from(None, ValueError("its own cause"))
    loop.__cause__ = loop
    assert aside_of(loop) is None


# -- running -----------------------------------------------------------------------------


def ran(call, notes, *, timeout_s=30.0, item=None, process=False):
    chosen = Stage("one", call, PLAIN, timeout_s, None, process)
    claim = claim_of(input_json=json.dumps(item))

    async def main():
        hands = StageProcessPool()
        try:
            return await run(claim, chosen, Threads(2), Stopping(), notes=notes, process_pool=hands)
        finally:
            await hands.close()

    return asyncio.run(main())


def plain(item, context):
    context.capture("asked")
    raise unfit(f"{SECRET} is no JSON")


async def awaited(item, context):
    context.capture("asked")
    raise unfit(f"{SECRET} is no JSON")


CHILDREN = [(plays.unfit, True), (plays.unfit_async, True)]


@pytest.mark.parametrize(("call", "process"), [(plain, False), (awaited, False), *CHILDREN])
def test_a_stage_that_fails_leaves_what_it_took_and_what_did_not_pass(call, process):
    notes = AttemptNotes()
    outcome = ran(call, notes, process=process, item=SECRET)
    assert [(one.kind, one.content) for one in notes.asides] == [
        ("raw", b"asked"),
        ("invalid_output", f"{SECRET} is no JSON".encode()),
    ]
    assert isinstance(outcome, Raised)
    assert outcome.evidence.kind == "invalid_output"
    assert SECRET not in repr(outcome)


def test_a_stage_whose_error_cannot_be_read_fails_all_the_same():
    def call(item):
        raise Ours("billing", "no credit")

    notes = AttemptNotes()
    outcome = ran(call, notes)
    assert isinstance(outcome, Raised)
    assert (outcome.evidence.kind, notes.asides) == ("billing", ())


def test_what_a_child_took_before_its_time_was_over_is_kept():
    notes = AttemptNotes()
    outcome = ran(plays.takes_and_waits, notes, process=True, timeout_s=0.5, item="x" * 300_000)
    assert isinstance(outcome, TimedOut)
    (one,) = notes.asides
    assert (len(one.content), one.bytes_whole) == (CAPTURE_BYTES_MAX, 300_000)


def test_what_a_child_took_before_it_died_is_kept():
    notes = AttemptNotes()
    outcome = ran(plays.takes_and_dies, notes, process=True, item="last words")
    assert isinstance(outcome, Lost)
    assert [one.content for one in notes.asides] == [b"last words"]


def test_a_message_of_a_child_carries_the_bytes_and_does_not_show_them():
    message = StageCaptured(
        RawOutput("raw", "application/octet-stream", b"\x00" + SECRET.encode(), 9)
    )
    assert read_said(frame(message)[4:]) == message
    assert SECRET not in repr(message)


def test_a_traceback_is_kept_whole_but_for_secrets_and_the_servers_folders():
    def call(item):
        raise OSError(f"no key: api_key={SECRET}1 in /srv/hidden/place.txt") from KeyError("first")

    notes = AttemptNotes(tracebacks=True)
    ran(call, notes)
    (one,) = notes.asides
    text = one.content.decode()
    assert (one.kind, one.media_type) == ("traceback", "text/plain; charset=utf-8")
    assert "KeyError: 'first'" in text
    assert "OSError: no key" in text
    assert ", in call" in text
    assert SECRET not in text
    assert "/srv" not in text
    assert f'File "tests/engine/attempt/{Path(__file__).name}", line' in text
    assert str(Path.cwd()) not in text


def test_a_traceback_without_end_is_cut_before_it_is_looked_through():
    notes = AttemptNotes(tracebacks=True)
    notes.keep_failed_output(ValueError("x " * CAPTURE_BYTES_MAX))
    (one,) = notes.asides
    assert len(one.content) <= CAPTURE_BYTES_MAX


# -- to the store ------------------------------------------------------------------------


def test_what_is_kept_has_an_id_and_a_time():
    capture_factory = CaptureFactory(VirtualClock(), Random(1), kept_s=60.0)
    asides = [RawOutput("raw", "text/plain", b"a", 1), RawOutput("raw", "text/plain", b"b", 9)]
    first, second = capture_factory.captures_of(TimedOut(1.0), asides)
    assert first.id < second.id
    assert (second.content, second.bytes_whole, second.kept_s) == (b"b", 9, 60.0)


def test_what_is_given_back_leaves_nothing():
    capture_factory = CaptureFactory(VirtualClock(), Random(1), kept_s=60.0)
    asides = [RawOutput("raw", "text/plain", b"a", 1)]
    assert capture_factory.captures_of(Interrupted(), asides) == ()
    assert len(capture_factory.captures_of(DONE, asides)) == 1


def test_what_carries_raw_output_does_not_show_it():
    carried = capture(content=SECRET.encode())
    assert SECRET not in repr(carried)
    assert SECRET not in repr(Finished(claim_of(), DONE, 0.1, captures=(carried,)))


def test_captures_stand_beside_the_attempt_that_made_them(shop):
    id = shop.place.put().id
    shop.pump.once()
    (claim,) = shop.running.values()
    failing = Raised(Evidence(("ValueError",), "no total"))
    shop.finished.append(Finished(claim, failing, 0.5, captures=(capture(1, b"first"),)))
    shop.pump.once()
    shop.clock.push(11)
    shop.pump.once()
    (again,) = [one for one in shop.started if one.token != claim.token]
    shop.finished.append(Finished(again, DONE, 0.5, captures=(capture(2, b"second"),)))
    shop.pump.once()
    reader = shop.place.reader
    kept = reader.captures(shop.place.see(id).no)
    assert [(one.token, one.stage) for one in kept] == [(claim.token, "one"), (again.token, "one")]
    assert [reader.capture(one.id, owner=None)[1] for one in kept] == [b"first", b"second"]


def test_a_result_that_the_store_refuses_keeps_its_captures():
    shop = Shop(stage("one"), concurrency=1)
    shop.place.put()
    shop.pump.once()
    (claim,) = shop.running.values()
    refused = Returned('"fine"', "half \ud800")
    shop.finished.append(Finished(claim, refused, 0.5, captures=(capture(),)))
    shop.pump.once()
    shop.pump.once()
    (attempt,) = shop.place.reader.attempts(claim.no)
    assert attempt.kind == "internal"
    (kept,) = shop.place.reader.captures(claim.no)
    assert kept.id == capture().id
    shop.close()


def test_a_record_that_is_sent_twice_leaves_one_capture(shop):
    shop.place.put()
    shop.pump.once()
    (claim,) = shop.running.values()
    shop.finished.append(Finished(claim, DONE, 0.5, captures=(capture(),)))
    shop.store.breaks = ["after"]
    with pytest.raises(StoreUnavailable, match="on the way back"):
        shop.pump.once()
    shop.pump.once()
    assert len(shop.place.reader.captures(claim.no)) == 1


# -- letting go --------------------------------------------------------------------------


def with_captures(place, count: int, kept_s: float | None, *, first: int = 1) -> int:
    """A job whose attempt has left captures; its number."""
    worker = place.hire()
    place.put()
    (claim,) = place.take(worker, 1)
    record = success(claim, worker)
    left = tuple(capture(first + n, kept_s=kept_s) for n in range(count))
    place.settle(replace(record, captures=left), by=worker)
    return claim.no


def test_captures_whose_time_is_over_go_and_their_job_stays(either):
    short, ever = with_captures(either, 2, 60.0), with_captures(either, 2, None, first=10)
    chore = Prune(either.control, Retention(), clock=either.clock)
    either.clock.push(59)
    chore.once()
    assert len(either.reader.captures(short)) == 2
    either.clock.push(prune.REST_S)
    chore.once()
    assert either.reader.captures(short) == []
    assert len(either.reader.captures(ever)) == 2
    assert either.reader.books().accepted == 2
    either.clean()


def test_a_round_of_slow_steps_ends_when_it_has_taken_its_time(place):
    class Slow:
        steps = 0

        def prune_captures(self, *, limit):
            place.clock.push(prune.SPEND_S * 0.6)
            self.steps += 1
            return limit

        def prune_changes(self, kept_s, *, limit):
            return 0

        def prune_workers(self, kept_s, *, limit):
            return 0

    slow = Slow()
    chore = Prune(slow, Retention(), clock=place.clock)
    chore.once()
    assert slow.steps == 2
    chore.once()
    assert slow.steps == 4


@pytest.mark.parametrize("retention", [Retention(), Retention(succeeded_s=9e6)])
def test_a_round_lets_go_of_so_many_and_the_next_one_comes_without_a_rest(
    place, monkeypatch, retention
):
    monkeypatch.setattr(prune, "CAPTURE_ROWS", 2)
    monkeypatch.setattr(prune, "STEPS_MAX", 2)
    no = with_captures(place, 11, 60.0)
    place.clock.push(61)
    chore = Prune(place.control, retention, clock=place.clock)
    left = []
    for _ in range(4):
        chore.once()
        left.append(len(place.reader.captures(no)))
    assert left == [7, 3, 0, 0]
