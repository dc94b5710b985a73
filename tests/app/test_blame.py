"""Whose fault it was, from outside: stages, answers and health checks that go wrong behind a gate, on both stores."""

import json

from click.testing import CliRunner

from perdure import App, Backoff, GateSettings, Jitter, PaceSettings, StageError, WindowSettings
from perdure.checks import check
from perdure.demo.client import post
from perdure.model.events import Event, EventName
from perdure.model.nouns import replace
from perdure.model.states import TERMINAL, FailedReason, State
from perdure.rules.policy import Policy
from perdure.rules.presets import preset
from perdure.surfaces.cli.root import cli
from perdure.testing.upstream import Answer, Upstream
from tests.app import acts
from tests.engine.kit import until

GATE = GateSettings(  # the usual one, except that it begins with eight calls and asks soon
    gaps=Backoff("fixed", base_s=0.1), jitter=Jitter("none"), pace=PaceSettings(start_calls=8)
)
STANDARD = replace(preset("standard"), backoff=Backoff("fixed", base_s=0.05))


def pipe_of(app: App, call, *, gate: GateSettings = GATE, policy: Policy = STANDARD, **more):
    app.upstream("v", gate=gate, **more)
    return app.pipeline("p", app.stage(name="ask", upstream="v", policy=policy)(call))


def worked(app: App, jobs) -> list:
    """All of them, ended."""
    with app.working(concurrency=8):
        until(lambda: all(job.view().state in TERMINAL for job in jobs), "all have ended")
    return [job.view() for job in jobs]


def changes(told: list[Event]) -> list[tuple[object, object]]:
    found = [one.fields for one in told if one.name is EventName.GATE_CHANGED]
    return [(one["move"], one["reason"]) for one in found]


def shown(url: str, *words: str) -> str:
    done = CliRunner().invoke(cli, ["gates", "show", "v", "--store", url, *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_forty_items_that_meet_a_key_error_of_the_stage_are_dead_letters_and_hold_nothing(
    app, url, told
):
    pipe = pipe_of(app, acts.looks_up)
    jobs = worked(app, [pipe.enqueue("lost") for _ in range(40)])
    assert {(job.state, job.failed_reason) for job in jobs} == {
        (State.FAILED, FailedReason.EXHAUSTED)
    }
    assert {job.counters.failures for job in jobs} == {2}  # as the row of `unknown` says
    attempts = app._session.opened.reader.attempts(jobs[0].no)
    assert [json.loads(one.evidence_json)["origin"] for one in attempts] == ["own code"] * 2
    assert changes(told) == []
    assert shown(url).splitlines()[0] == "upstream v: flowing, calls pass"
    (group,) = app._session.opened.reader.dead_groups()
    assert group.count == 40


def test_the_same_error_stated_as_the_upstreams_holds_the_gate(app, url, told):
    """The twin: what differs is whose fault it is."""

    def ask(item):
        raise StageError("upstream_error", "500")

    pipe = pipe_of(app, ask, gate=replace(GATE, gaps=Backoff("fixed", base_s=60.0)))
    for n in range(40):
        pipe.enqueue(n)
    with app.working(concurrency=8):
        until(lambda: changes(told) != [], "the gate is held")
    assert changes(told)[0][0] == "trip"
    assert shown(url).startswith("upstream v: held")


def test_answers_that_never_fit_with_a_few_faults_among_them_hold_nothing(app, url, told):
    fault, answer = Answer(500, {"error": "oops"}), Answer(200, {"total": "many"})
    with Upstream() as upstream:
        upstream.script(*(fault if n % 12 == 5 else answer for n in range(400)))
        pipe = pipe_of(
            app,
            lambda item: check(post(upstream.url, item, timeout_s=20), dict[str, int]),
            policy=replace(STANDARD, attempts_max=20),  # one job may meet most of the faults
        )
        jobs = worked(app, [pipe.enqueue(n) for n in range(30)])
        calls = len(upstream.requests)
    assert {job.state for job in jobs} == {State.FAILED}
    (group,) = app._session.opened.reader.dead_groups()
    assert (group.kind, group.count) == ("invalid_output", 30)
    assert 90 <= calls < 120
    assert changes(told) == []
    assert shown(url).splitlines()[0] == "upstream v: flowing, calls pass"


def test_a_health_check_with_a_bug_of_its_own_is_given_up_after_three(app, url, told):
    well: list[bool] = []

    def ask(item):
        if not well:
            raise StageError("upstream_unavailable", "503")
        return item

    def health():
        well.append(True)  # while it is asked, the upstream comes back
        return {}["status"]

    window = WindowSettings(calls=8, calls_min=4)
    pipe = pipe_of(app, ask, gate=replace(GATE, window=window), health=health)
    jobs = worked(app, [pipe.enqueue(n) for n in range(20)])
    assert {job.state for job in jobs} == {State.SUCCEEDED}
    assert len(well) == 3
    assert [move for move, _ in changes(told)] == ["trip", "resume"]
    assert changes(told)[-1][1] == "flowing: 3 probes in a row said nothing about the upstream"
    assert shown(url).startswith("upstream v: flowing")
