"""A result that cannot be kept ends its job after one call, under every policy, on both stores."""

import asyncio

import pytest

from perdure import App, JobFailed, Policy, Profile, Rule
from perdure.model.limits import RESULT_BYTES_MAX
from perdure.model.states import FailedReason, State
from perdure.rules.policy import Action
from perdure.rules.presets import PRESETS
from tests.app import acts
from tests.app.worker.working_off import worked_off

BACKGROUND = [name for name, one in PRESETS.items() if one.policy.profile is Profile.BACKGROUND]
SYNC = [name for name, one in PRESETS.items() if one.policy.profile is Profile.SYNC]
STUBBORN = Policy("stubborn", attempts_max=9, otherwise=Rule(Action.RETRY))
A_SET = (
    "the result is of type set, which JSON cannot hold unchanged; pass plain values, a dataclass,"
)


class Counting:
    """A stage that returns a value, and how often it was called."""

    def __init__(self, value):
        self.value, self.calls = value, 0

    def __call__(self, item):
        self.calls += 1
        return self.value


def a_dead_letter(app: App, job, words: str) -> None:
    (attempt,) = app._session.opened.reader.attempts(job.no)
    assert (job.state, job.failed_reason) == (State.FAILED, FailedReason.FATAL)
    assert (job.error_kind, attempt.kind) == ("internal", "internal")
    assert words in job.error_detail
    assert words in attempt.message
    assert words in attempt.why_json
    assert "no policy asks for it" in attempt.why_json


def test_it_costs_one_call_under_every_preset(app):
    asked = []
    for policy in (*(PRESETS[name].policy for name in BACKGROUND), STUBBORN):
        counting = Counting({1, 2})
        stage = app.stage(name="ask", policy=policy)(counting)
        asked.append((counting, app.pipeline(f"by {policy.name}", stage).enqueue(1)))
    worked_off(app)
    for counting, ref in asked:
        a_dead_letter(app, ref.view(), A_SET)
        assert counting.calls == 1


VALUES = {
    "too long": (
        "x" * RESULT_BYTES_MAX,
        f"the result is {RESULT_BYTES_MAX + 2} bytes long, at most {RESULT_BYTES_MAX} are accepted; store it elsewhere",
    ),
    "no number": ({"price": float("nan")}, "the result.price is nan, which JSON cannot hold"),
    "no text": ({"n": {1: 2}}, "the result.n has a key of type int; JSON keys must be text"),
}


@pytest.mark.parametrize(("value", "words"), VALUES.values(), ids=VALUES)
def test_its_sentence_names_the_fault_and_the_remedy(app, value, words):
    stage = app.stage(name="ask")(Counting(value))
    ref = app.pipeline("p", stage).enqueue(1)
    worked_off(app)
    a_dead_letter(app, ref.view(), words)


def test_it_is_the_same_for_a_stage_in_a_process_of_its_own(app):
    stage = app.stage(process=True)(acts.returns_a_set)
    ref = app.pipeline("p", stage).enqueue(1)
    worked_off(app)
    a_dead_letter(app, ref.view(), A_SET)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        *((one, " with INTERNAL_ERROR") for one in (None, *SYNC)),
        (Policy("p", profile=Profile.SYNC, otherwise=Rule("retry")), ""),  # it has no codes
    ],
)
def test_a_call_fails_at_once_and_is_not_handed_over(app, policy, code):
    counting = Counting({1, 2})
    pipe = app.pipeline("p", app.stage(name="ask")(counting))
    with pytest.raises(JobFailed, match=rf"failed{code} \(fatal, internal\)"):
        asyncio.run(pipe.call_async(1, policy=policy))
    (job,) = app._session.opened.reader.jobs()
    a_dead_letter(app, job, A_SET)
    assert counting.calls == 1
