"""The modelled upstream does what its numbers say."""

import pytest

from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.outcomes import Raised
from perdure.rules.classify import classify
from perdure.simulate.replies import Form, evidence_of
from perdure.simulate.scene import START_AT, Defect
from perdure.simulate.upstream import Account, Brownout, Ramp, SimulatedUpstream, UpstreamModel


def forms(upstream, starts_s):
    return [upstream.call(start_s).form for start_s in starts_s]


def admitted(model, per_s, for_s):
    upstream = SimulatedUpstream(model, 1)
    answers = forms(upstream, [n / per_s for n in range(int(per_s * for_s))])
    return sum(form is Form.OK for form in answers)


def test_a_bucket_admits_its_burst_and_then_its_rate():
    assert admitted(UpstreamModel(rate_per_s=10.0, burst=10.0), 100, 60.0) in range(608, 612)


def test_without_a_limit_everything_is_admitted():
    assert admitted(UpstreamModel(rate_per_s=None), 100, 10.0) == 1_000


def test_calls_that_were_rejected_use_up_the_limit_where_they_count():
    model = UpstreamModel(rate_per_s=10.0, burst=10.0, rejected_count=True)
    assert admitted(model, 100, 60.0) == 10  # the burst, and never again while they keep calling
    assert admitted(model, 9, 60.0) == 540  # below the limit nothing is lost


def test_a_hint_says_when_the_next_call_is_admitted():
    upstream = SimulatedUpstream(UpstreamModel(rate_per_s=10.0, burst=1.0), 1)
    assert upstream.call(0.0).form is Form.OK
    refused = upstream.call(0.01)
    assert refused.form is Form.LIMITED
    assert refused.hint_s is not None
    assert upstream.call(0.01 + refused.hint_s - 0.001).form is Form.LIMITED
    assert upstream.call(0.01 + refused.hint_s + 0.001).form is Form.OK
    silent = SimulatedUpstream(UpstreamModel(rate_per_s=10.0, burst=1.0, hints=False), 1)
    assert [silent.call(0.0).hint_s, silent.call(0.0).hint_s] == [None, None]


def test_an_outage_has_a_beginning_and_an_end():
    upstream = SimulatedUpstream(UpstreamModel(outages_s=((10.0, 20.0),)), 1)
    assert forms(upstream, [9.9, 10.0, 19.9, 20.0]) == [
        Form.OK,
        Form.UNAVAILABLE,
        Form.UNAVAILABLE,
        Form.OK,
    ]


def test_a_share_of_calls_fails_and_a_share_is_cut_in_the_middle_at_a_price():
    upstream = SimulatedUpstream(UpstreamModel(rate_per_s=None, fault_share=0.3, cut_share=0.2), 1)
    replies = [upstream.call(float(n)) for n in range(5_000)]
    count = {form: sum(one.form is form for one in replies) for form in Form}
    assert count[Form.FAULT] == pytest.approx(1_500, rel=0.1)
    assert count[Form.CUT] == pytest.approx(1_000, rel=0.1)
    assert {one.tokens for one in replies if one.form is Form.CUT} == {1_250}
    assert {one.tokens for one in replies if one.form is Form.OK} == {0}


def test_a_ramp_grows_only_as_fast_as_it_is_used():
    model = UpstreamModel(burst=5.0, ramp=Ramp(start_per_s=5.0, growth=1.5, window_s=100.0))
    used, idle = SimulatedUpstream(model, 1), SimulatedUpstream(model, 1)
    for n in range(3_000):
        used.call(n / 10)
    assert used.limit_per_s == pytest.approx(5.0 * 1.5**2, rel=0.02)
    idle.call(300.0)
    assert idle.limit_per_s == 5.0


def test_an_empty_account_refuses_until_somebody_pays():
    upstream = SimulatedUpstream(UpstreamModel(account=Account(calls=3, paid_s=60.0)), 1)
    assert forms(upstream, [0, 1, 2, 3, 59, 60, 61]) == [
        Form.OK,
        Form.OK,
        Form.OK,
        Form.BILLING,
        Form.BILLING,
        Form.OK,
        Form.OK,
    ]


def test_in_a_brownout_more_calls_mean_fewer_answers():
    model = UpstreamModel(
        rate_per_s=None, timeout_s=10.0, brownout=Brownout(0.0, 1_000.0, factor=5.0, slots=20)
    )
    gentle, greedy = SimulatedUpstream(model, 1), SimulatedUpstream(model, 1)
    assert set(forms(gentle, [n / 3 for n in range(300)])) == {Form.OK}
    answers = forms(greedy, [n / 30 for n in range(3_000)])
    assert sum(form is Form.OK for form in answers) < 300


@pytest.mark.parametrize(
    "model",
    [
        UpstreamModel(rate_per_s=3.0, burst=2.0),
        UpstreamModel(outages_s=((0.0, 7.0), (9.0, 12.0))),
        UpstreamModel(account=Account(calls=2, paid_s=30.0)),
        UpstreamModel(burst=1.0, ramp=Ramp(start_per_s=2.0, window_s=5.0)),
        UpstreamModel(rate_per_s=None, brownout=Brownout(0.0, 9.0, factor=4.0, slots=2)),
    ],
)
def test_who_knows_everything_is_admitted_at_the_moment_that_it_is_told(model):
    upstream, now_s = SimulatedUpstream(model, 1), 0.0
    for _ in range(40):
        for _ in range(10):
            free_s = upstream.free_at(now_s)
            if free_s <= now_s:
                break
            now_s = free_s
        assert upstream.call(now_s).form is Form.OK


MEANT = {
    Form.UNAVAILABLE: Kind.UPSTREAM_UNAVAILABLE,
    Form.FAULT: Kind.UPSTREAM_ERROR,
    Form.LIMITED: Kind.RATE_LIMITED,
    Form.RAMP: Kind.RATE_LIMITED,
    Form.BILLING: Kind.BILLING,
    Form.TIMED_OUT: Kind.TIMEOUT,
    Form.CUT: Kind.OVERLOADED,
    Form.MISFIT: Kind.INVALID_OUTPUT,
    Form.OWN_BUG: Kind.UNKNOWN,
}


def test_refusals_by_chance_are_as_many_as_the_model_says_and_use_up_nothing():
    upstream = SimulatedUpstream(
        UpstreamModel(rate_per_s=None, refused_share=0.2, hint_s_min=2.0), 1
    )
    replies = [upstream.call(n * 0.01) for n in range(2_000)]
    refused = [reply for reply in replies if reply.form is Form.LIMITED]
    assert 300 < len(refused) < 500
    assert {reply.hint_s for reply in refused} == {2.0}
    assert upstream.admitted == 2_000 - len(refused)


def test_rejected_calls_run_into_debt_as_far_as_the_model_lets_them():
    model = UpstreamModel(rate_per_s=1.0, burst=1.0, rejected_count=True, debt_max=10.0)
    upstream = SimulatedUpstream(model, 1)
    assert forms(upstream, [0.0] * 50).count(Form.OK) == 1
    assert forms(upstream, [10.9]) == [Form.LIMITED]
    assert (
        forms(SimulatedUpstream(replace(model, debt_max=None), 1), [0.0] * 50 + [2.1])[-1]
        is Form.OK
    )


def test_defects_are_spread_evenly_over_the_jobs():
    defect = Defect(0.1, Form.OWN_BUG, 2)
    assert [no for no in range(40) if defect.strikes(no)] == [9, 19, 29, 39]
    assert all(Defect(1.0, Form.MISFIT, 3).strikes(no) for no in range(40))


@pytest.mark.parametrize("form", [form for form in Form if form is not Form.OK])
def test_the_rules_read_each_answer_as_it_is_meant(form):
    failure = classify(Raised(evidence_of(form, None)), now=START_AT)
    assert failure.kind is MEANT[form]
    assert failure.hint_s is None
    hinted = classify(Raised(evidence_of(form, 1.5)), now=START_AT)
    assert (hinted.kind, hinted.hint_s) == (MEANT[form], 1.5)
