"""enqueue, stages and orders: what is checked before anything is stored or claimed."""

from datetime import UTC, datetime, timedelta, timezone
from random import Random

import pytest

from perdure.engine import enqueue as enqueue_module
from perdure.engine.attempt.context import Context
from perdure.engine.claim import order_for
from perdure.engine.enqueue import enqueue, new_job
from perdure.engine.ids import Ids
from perdure.engine.stages import Catalogue, LaidPipeline, Stage
from perdure.model.errors import CallerError, ConfigError, PayloadRefused
from perdure.model.jobs import ClaimOrder, Lane
from perdure.model.limits import CLAIM_BATCH_MAX, PAYLOAD_BYTES_MAX, PIPELINE_STAGES_MAX
from perdure.testing import VirtualClock
from tests.engine.kit import PLAIN, echo, line_on, stage


@pytest.fixture
def ids():
    return Ids(VirtualClock(), Random(1))


LINE = LaidPipeline("p", "q", "c", (stage("one"), stage("two")), {"one": 11, "two": 22})


def test_a_new_job_begins_at_the_first_stage(ids):
    job = new_job(ids, LINE, {"n": 1}, owner="ann", key="k", priority=2, deadline_s=60)
    assert (job.pipeline, job.stage, job.lane) == ("p", "one", 11)
    assert (job.payload_json, job.owner, job.key) == ('{"n":1}', "ann", "k")
    assert (job.priority, job.deadline_s, job.run_at) == (2, 60, None)


def test_a_time_of_any_zone_is_kept_in_utc(ids):
    here = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    job = new_job(ids, LINE, 1, run_at=here)
    assert job.run_at == here
    assert job.run_at.tzinfo is UTC


WRONG = [
    ({"owner": " ann"}, "owner name ' ann' must have 1 to 100 printable characters"),
    ({"owner": "a\x00"}, "owner name"),
    ({"owner": "x" * 101}, "owner name"),
    ({"key": ""}, "key '' must have 1 to 200 printable characters"),
    ({"key": "k" * 1_000}, f"key '{'k' * 40}' must have 1 to 200 printable characters"),
    ({"key": "x" * 201}, "hash what is longer"),
    ({"key": "a\nb"}, "key"),
    ({"key": "\ud800"}, "key"),
    ({"priority": 1_000_001}, "priority 1000001 must lie between"),
    ({"priority": -1_000_001}, "priority -1000001"),
    ({"run_at": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
    ({"deadline_s": 0}, "deadline_s 0 must be more than 0 s, and at most ten years"),
    ({"deadline_s": -1}, "deadline_s -1"),
    ({"deadline_s": float("nan")}, "deadline_s nan"),
    ({"deadline_s": 1e12}, "deadline_s"),
    ({"request_id": 7}, "request_id is 7, of type int"),
    ({"request_id": ""}, "request_id '' must have 1 to 128 visible ASCII characters and no space"),
    ({"request_id": "a b"}, "leave it out, and the job's id serves"),
    ({"request_id": "a\n"}, "request_id"),
    ({"request_id": "é"}, "request_id"),
    ({"request_id": "x" * 129}, "request_id"),
    ({"ordered_at": "2026-01-01"}, "ordered_at is '2026-01-01', of type str"),
    ({"ordered_at": datetime(2026, 1, 1)}, "ordered_at 2026-01-01 00:00:00 has no time zone"),  # noqa: DTZ001
    ({"ordered_at": datetime(1969, 12, 31, tzinfo=UTC)}, "must lie from 1970 on"),
    ({"ordered_at": datetime.max.replace(tzinfo=UTC)}, "must lie from 1970 on"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_a_wrong_option_is_refused_with_its_value(ids, options, words):
    with pytest.raises((CallerError, ConfigError)) as caught:
        new_job(ids, LINE, 1, **options)
    assert words in str(caught.value)


def test_a_job_has_the_request_id_and_the_place_that_its_caller_gives(ids):
    here = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    given = [new_job(ids, LINE, 1, request_id=text) for text in ("~", "!" * 128, None)]
    assert [job.request_id for job in given] == ["~", "!" * 128, None]
    job = new_job(ids, LINE, 1, ordered_at=here)
    assert (job.ordered_at, job.ordered_at.tzinfo) == (here, UTC)


def test_an_item_passes_the_door(ids):
    with pytest.raises(PayloadRefused, match="the item is nan"):
        new_job(ids, LINE, float("nan"))
    with pytest.raises(PayloadRefused, match="pass a reference"):
        new_job(ids, LINE, "x" * PAYLOAD_BYTES_MAX)


def test_many_jobs_are_accepted_in_order_in_bounded_transactions(place, ids, monkeypatch):
    monkeypatch.setattr(enqueue_module, "ENQUEUE_BATCH_MAX", 10)
    line = line_on(place)
    batches: list[int] = []

    class Counting:
        def enqueue(self, jobs, *, within=None):
            batches.append(len(jobs))
            return place.store.enqueue(jobs, within=within)

    done = enqueue(Counting(), (new_job(ids, line, n) for n in range(25)))
    assert batches == [10, 10, 5]
    assert [one.no for one in done] == list(range(1, 26))
    assert [job.payload_json for job in place.reader.jobs()] == [str(n) for n in range(24, -1, -1)]


def test_a_bad_item_keeps_its_batch_out_and_not_those_before(place, ids, monkeypatch):
    monkeypatch.setattr(enqueue_module, "ENQUEUE_BATCH_MAX", 2)
    line = line_on(place)
    items = [1, 2, 3, float("nan"), 5]
    with pytest.raises(PayloadRefused):
        enqueue(place.store, (new_job(ids, line, item) for item in items))
    assert place.reader.books().accepted == 2
    place.clean()


def test_nothing_to_enqueue_is_nothing(place):
    assert enqueue(place.store, []) == []


# -- stages and lines --------------------------------------------------------------------


async def slow(item):
    return item


def with_context(item, context):
    return item


def test_a_stage_knows_how_it_is_to_be_called():
    assert (stage(call=echo).is_async, stage(call=echo).wants_context) == (False, False)
    assert (stage(call=slow).is_async, stage(call=with_context).wants_context) == (True, True)
    assert not stage(call=lambda item, extra=1: item).wants_context


def annotated(item, about: Context):
    return about.item


def in_words(item, about: "Context | None" = None):
    return about.item


def by_keyword(item, model="small", *, context):
    return context.item


def by_place(item, context, /):
    return context.item


def unresolved(item, about: "elsewhere.Context"):  # noqa: F821 - known by its name
    return about.item


@pytest.mark.parametrize(
    "call", [with_context, annotated, in_words, by_keyword, by_place, unresolved]
)
def test_the_context_goes_to_the_parameter_that_asks_for_it(call):
    assert stage(call=call).wants_context


def test_an_annotation_goes_before_a_name():
    found = stage(call=lambda item, context=1, *, other=None: item).callee.context
    assert found.name == "context"

    def both(item, context=1, *, other: Context):
        return other

    assert stage(call=both).callee.context.name == "other"


def spare(item, tries):
    return tries


def late(item, *, tries):
    return tries


def only_context(about: Context):
    return about


@pytest.mark.parametrize("call", [spare, late, lambda item, context, tries: tries])
def test_any_other_required_parameter_is_refused_with_its_name_and_a_remedy(call):
    with pytest.raises(ConfigError) as caught:
        stage("ask", call=call)
    said = str(caught.value)
    assert said.startswith("stage 'ask' has the required parameter 'tries', which nobody fills")
    assert "named 'context' or annotated perdure.Context" in said
    assert said.endswith("annotate it so, else give it a default")


@pytest.mark.parametrize("call", [lambda: 1, lambda *all: all, only_context, lambda context: 1])
def test_a_stage_must_take_the_item_first(call):
    with pytest.raises(ConfigError, match="must take the item as its first parameter"):
        stage("ask", call=call)


def test_an_item_with_a_type_may_be_called_context():
    def ask(context: str):
        return context

    assert not stage("ask", call=ask).wants_context


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: stage(call=lambda: 1), "stage 'one' must take the item as its first parameter"),
        (lambda: stage(call=str), "stage 'one' cannot be <class 'str'>, whose parameters nobody can read"),
        (lambda: stage(call=lambda a, b, c: 1), "the required parameter 'b'"),
        (lambda: stage(timeout_s=0), "timeout_s of stage 'one' is 0; it must be more than 0 and at most 86400"),
        (lambda: stage(timeout_s=float("nan")), "timeout_s"),
        (lambda: stage(timeout_s=90_000), "timeout_s"),
        (lambda: stage(""), "stage name ''"),
        (lambda: stage("a\nb"), "stage name"),
        (lambda: LaidPipeline("p", "q", "c", ()), "pipeline 'p' has 0 stages; it must have 1 to 50"),
        (
            lambda: LaidPipeline("p", "q", "c", tuple(stage(f"s{n}") for n in range(PIPELINE_STAGES_MAX + 1))),
            "has 51 stages",
        ),
        (lambda: LaidPipeline("p", "q", "c", (stage(), stage())), "has the stage 'one' twice"),
        (lambda: LaidPipeline(" p", "q", "c", (stage(),)), "pipeline name ' p'"),
        (lambda: LaidPipeline(5, "q", "c", (stage(),)), "pipeline name 5 is no text"),
        (lambda: LaidPipeline("p", "", "c", (stage(),)), "queue name ''"),
        (lambda: LaidPipeline("p", "q", "x" * 101, (stage(),)), "category name"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_refused_with_its_name(make, words):
    with pytest.raises(ConfigError) as caught:
        make()
    assert words in str(caught.value)


def test_a_line_knows_its_stages_in_order():
    assert LINE.stage("two") is LINE.stages[1]
    assert LINE.stage("three") is None
    assert LINE.after("one") is LINE.stages[1]
    assert LINE.after("two") is None
    assert LINE.lanes() == [Lane("q", "c", "p", "one"), Lane("q", "c", "p", "two")]


def test_a_catalogue_finds_what_it_has():
    catalogue = Catalogue([LINE])
    assert catalogue.pipeline("p") == LINE
    assert catalogue.pipeline("x") is None
    assert catalogue.stage("p", "one") is LINE.stages[0]
    assert catalogue.stage("p", "x") is None
    assert catalogue.stage("x", "one") is None
    assert catalogue.lane_nos() == (11, 22)


def test_the_fingerprint_of_a_stage_changes_with_what_it_is():
    plain = Stage("one", echo, PLAIN, 60.0)
    others = [
        Stage("two", echo, PLAIN, 60.0),
        Stage("one", echo, PLAIN, 61.0),
        Stage("one", echo, PLAIN, 60.0, "openai"),
    ]
    assert plain.config_hash == Stage("one", echo, PLAIN, 60.0).config_hash
    assert len({plain.config_hash, *(one.config_hash for one in others)}) == 4


# -- orders ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "draining", "catalogue", "order"),
    [
        (4, False, Catalogue([LINE]), ClaimOrder(7, 4, (11, 22), 1)),
        (10**6, False, Catalogue([LINE]), ClaimOrder(7, CLAIM_BATCH_MAX, (11, 22), 1)),
        (0, False, Catalogue([LINE]), None),
        (-2, False, Catalogue([LINE]), None),
        (4, True, Catalogue([LINE]), None),
        (4, False, Catalogue([]), None),
    ],
)
def test_an_order_is_for_free_slots_in_known_lanes(slots, draining, catalogue, order):
    assert order_for(catalogue, worker=7, isolation=1, slots=slots, draining=draining) == order
