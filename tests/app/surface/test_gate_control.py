"""Upstreams as an app declares them, and a worker in this process that keeps their gates."""

import threading

import pytest

from perdure import (
    App,
    Backoff,
    ConfigError,
    GateSettings,
    Jitter,
    PaceSettings,
    Policy,
    Rule,
    StageError,
    WindowSettings,
)
from perdure.app.surface import gate_control
from perdure.engine.gates.changes import VERBS
from perdure.model.events import Event, EventName
from perdure.model.gates import GateState
from perdure.rules.gate.gate import GateMove
from tests.engine.kit import until

QUICK = GateSettings(
    WindowSettings(calls=8, calls_min=4),
    gaps=Backoff("fixed", base_s=0.2),
    jitter=Jitter("none"),
    pace=PaceSettings(start_calls=8),
)
AGAIN = Policy("again", backoff=Backoff("fixed", base_s=0.1), otherwise=Rule("retry"))


@pytest.fixture
def app(tmp_path, told):
    app = App(f"sqlite:///{tmp_path / 'work.db'}", observers=[told.append])
    yield app
    app.close()


def moves(told: list[Event]) -> list[object]:
    return [one.fields["move"] for one in told if one.name is EventName.GATE_CHANGED]


def test_a_declaration_answers_with_the_name_for_the_stage(app):
    assert app.upstream("openai:gpt-5", credential="key-1", rate="500/min") == "openai:gpt-5"
    declared = app._session.upstreams.declared["openai:gpt-5"]
    assert (declared.credential, declared.limits.calls_per_s) == ("key-1", 500 / 60)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"rate": "lots"}, "upstream 'v': rate is 'lots'"),
        ({"tokens": "-1/min"}, "upstream 'v': tokens is '-1/min'"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"tokens_per_call": -1}, "tokens_per_call is -1"),
        ({"credential": " "}, "credential name ' '"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_declared(app, said, words):
    with pytest.raises(ConfigError, match=words):
        app.upstream("v", **said)


def test_two_words_about_one_upstream_are_one_too_many(app):
    app.upstream("v")
    with pytest.raises(ConfigError, match="declared twice"):
        app.upstream("v")


class Outage:
    """An upstream that fails until it is mended."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.calls = 0

    def call(self, item):
        self.calls += 1
        if not self.over.is_set():
            raise StageError("upstream_unavailable", "503")
        return item

    def well(self) -> bool:
        return self.over.is_set()


def test_an_outage_holds_the_queue_and_a_job_finds_out_that_it_is_over(app, told):
    outage = Outage()
    app.upstream("v", gate=QUICK)
    pipe = app.pipeline("p", app.stage(name="ask", upstream="v", policy=AGAIN)(outage.call))
    jobs = [pipe.enqueue(n) for n in range(30)]
    with app.working(concurrency=8):
        until(lambda: moves(told) == ["trip"], "the gate is held")
        until(lambda: _probes(told) >= 3, "probes go out")
        assert outage.calls < 30
        outage.over.set()
        assert [job.result(wait_s=20) for job in jobs] == list(range(30))
    assert moves(told) == ["trip", "flow"]
    verbs = [
        one.verb
        for one in reversed(app._session.opened.reader.deeds(limit=500))
        if one.subject == "v"
    ]
    assert (verbs[0], verbs[-1]) == ("trip gate", "flow gate")
    assert set(verbs[1:-1]) <= {"send probe", "probe failed", "hold gate (hint)"}
    assert verbs[1:3] == ["send probe", "probe failed"]
    spent = sum(job.view().counters.failures for job in jobs)
    assert spent <= 8  # what was out when it tripped


def test_a_credential_that_is_written_down_for_an_upstream_is_no_release(app):
    app.upstream("v", credential="key-1")
    pipe = app.pipeline("p", app.stage(name="ask", upstream="v")(lambda item: item))
    with app.working(concurrency=1):
        assert pipe.enqueue(1).result(wait_s=20) == 1
        until(lambda: app._session.opened.reader.deeds() != [], "the row names its credential")
    (deed,) = app._session.opened.reader.deeds()
    assert (deed.verb, deed.subject, deed.reason) == ("declare gate", "v", "declared")


def test_every_move_of_a_gate_has_a_word_of_its_own_in_the_audit_log():
    assert set(VERBS) == set(GateMove)
    assert len(set(VERBS.values())) == len(GateMove)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_health_check_finds_out_instead_of_a_job(app, told, way):
    outage = Outage()

    async def health() -> bool:
        return outage.well()

    app.upstream("v", gate=QUICK, health=outage.well if way == "sync" else health)
    pipe = app.pipeline("p", app.stage(name="ask", upstream="v", policy=AGAIN)(outage.call))
    jobs = [pipe.enqueue(n) for n in range(30)]
    with app.working(concurrency=8):
        until(lambda: moves(told) == ["trip"], "the gate is held")
        calls = outage.calls
        until(lambda: _probes(told) >= 3, "the upstream is asked")
        assert outage.calls <= max(calls, 8)
        outage.over.set()
        assert [job.result(wait_s=20) for job in jobs] == list(range(30))
    assert sum(job.view().counters.probes for job in jobs) == 0


def _probes(told: list[Event]) -> int:
    probed = [one for one in told if one.name is EventName.GATE_PROBED]
    return sum(one.fields["move"] == "lease" for one in probed)


@pytest.mark.parametrize(("left", "calls"), [("0", 1), ("9", 10)])
def test_headers_that_a_stage_hands_over_slow_its_calls_down(app, left, calls):
    headers = {"x-ratelimit-limit": "9", "x-ratelimit-remaining": left, "x-ratelimit-reset": "50"}
    begun = []

    def ask(item, context):
        begun.append(item)
        context.limits(headers)

    app.upstream("v")  # one call at first, so that its answer comes before the second
    asking = app.pipeline("p", app.stage(name="ask", upstream="v")(ask))
    free = app.pipeline("q", app.stage(name="free")(lambda item: item))
    jobs = [asking.enqueue(n) for n in range(10)]
    with app.working(concurrency=8):
        until(lambda: len(begun) == calls, "calls begin")
        until(lambda: any(job.view().shown_state == "succeeded" for job in jobs), "one is done")
        for n in range(5):  # the worker goes on meanwhile
            assert free.enqueue(n).result(wait_s=20) == n
        (gate,) = gate_control.gates(app._session.opened)
        assert gate.state is GateState.FLOWING  # not held: it only has no room
    assert len(begun) == calls
