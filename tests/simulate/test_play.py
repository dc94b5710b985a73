"""A simulated fleet keeps the promises of the engine, and one that is broken does not."""

import pytest

from perdure.rules.decide import FLOWING
from perdure.rules.policy import Policy
from perdure.rules.presets import gate_for, preset
from perdure.simulate.gates import SimulatedGates
from perdure.simulate.play import Play
from perdure.simulate.replies import Form, Reply
from perdure.simulate.scene import Batch, Fleet, Scene
from perdure.simulate.upstream import Account, SimulatedUpstream, UpstreamModel
from tests.simulate.kit import STANDARD, down, played, scene


def test_the_same_seed_gives_the_same_run_and_another_one_does_not():
    one, again, other = (played(down(), seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.starts_s != other.starts_s


SCENES = {
    "a burst": scene(),
    "a burst, rejected calls count": scene(
        upstream=UpstreamModel(rate_per_s=10.0, burst=10.0, rejected_count=True)
    ),
    "no hints": scene(upstream=UpstreamModel(rate_per_s=10.0, burst=10.0, hints=False)),
    "an outage": down(),
    "an outage, and a kill in it": down(killed_s=(10.0, 20.5)),
    "cut answers": scene(upstream=UpstreamModel(cut_share=0.1)),
    "one job": scene(1),
    "one worker": scene(fleet=Fleet(1, 1), upstream=UpstreamModel(latency_s=0.1)),
    "many workers": scene(fleet=Fleet(20, 5)),
    "two owners": scene(batches=(Batch("a", 200), Batch("b", 50, at_s=5.0)), fair=True),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", SCENES)
def test_every_job_ends_once_and_nobody_is_early(name, seed):
    history = played(SCENES[name], seed=seed)
    assert history.done == SCENES[name].jobs, f"seed {seed}: {history.given_up} given up"
    assert history.given_up == history.left_over == 0
    assert history.early == 0
    assert history.spent_held == 0
    assert sum(history.answers.values()) == len(history.starts_s)
    assert history.answers[Form.OK] >= history.done
    assert history.starts_s == sorted(history.starts_s)


def test_while_held_nothing_is_sent_but_probes():
    history = played(down(120.0))
    assert history.trips == 1
    tripped_s = next(at_s for at_s, state in history.gate if state == "held")
    assert history.calls_between(tripped_s + 0.1, 120.0) <= history.probes
    assert history.probes in range(8, 13)


def test_without_gates_an_outage_takes_every_job():
    history = played(down(60.0), gate=None)
    assert (history.done, history.given_up) == (0, 300)
    assert history.wasted == 300 * 5


def test_a_longer_deadline_of_attempts_survives_without_gates_at_a_price():
    patient = preset("datasets")
    assert played(down(2.0), gate=None, policy=patient).wasted > 300


def test_a_policy_s_total_time_ends_jobs_that_wait_behind_a_gate():
    outage = down(60.0, jobs=100)
    assert played(outage).given_up == 0
    hasty = Policy.based_on("standard", name="hasty", deadline_s=30.0)
    history = played(outage, policy=hasty)
    assert (history.given_up, history.done) == (100, 0)


def test_the_gate_survives_workers_that_are_killed():
    quiet = down(120.0)
    killed = down(120.0, killed_s=(30.0, 60.0, 90.0))
    kept = played(killed)
    forgot = played(killed, durable=False)
    assert kept.wasted <= played(quiet).wasted + 3
    assert forgot.wasted >= kept.wasted + 20  # each life finds the outage out anew
    assert kept.done == forgot.done == 300


def test_a_probe_that_dies_with_its_worker_does_not_freeze_the_gate():
    probing_s = next(
        at_s for at_s, state in played(down(120.0)).gate if state == "probing" and at_s > 20
    )
    history = played(down(120.0, killed_s=(probing_s + 0.1,)))
    assert history.done == 300
    assert history.finished_s < 120.0 + 30.0 + 60.0


def test_an_empty_account_holds_the_credential_until_a_person_releases_it():
    model = UpstreamModel(account=Account(calls=100, paid_s=600.0))
    history = played(scene(upstream=model, person_s=(700.0,)))
    assert history.done == 300
    assert history.alerts == 1
    assert history.answers[Form.BILLING] <= 40  # what was in flight, and nobody after it
    assert history.calls_between(60.0, 700.0) == 0


def test_seed_presets_fail_a_job_for_the_account_as_their_documents_say():
    model = UpstreamModel(account=Account(calls=100, paid_s=600.0))
    history = played(scene(upstream=model, person_s=(700.0,)), policy=preset("datasets-llm"))
    assert history.given_up > 0
    assert history.alerts == 0


def test_a_run_that_cannot_end_is_ended_at_its_horizon():
    history = played(down(10_000.0, horizon_s=100.0))
    assert (history.done, history.left_over) == (0, 300)
    assert history.ended_s <= 100.0


def test_a_run_may_end_with_one_owner_s_last_job():
    two = scene(batches=(Batch("a", 5_000), Batch("b", 20)), fair=True, stop_owner="b")
    history = played(two)
    assert len(history.done_s["b"]) == 20
    assert history.done < 200


class Refusing(SimulatedUpstream):
    """Answers every call of its outages with a 429 that does not say until when."""

    def call(self, now_s):
        reply = super().call(now_s)
        return Reply(Form.LIMITED, 0.05) if reply.form is Form.UNAVAILABLE else reply


class RefusedPlay(Play):
    def __init__(self, scene, policy, gate, seed):
        super().__init__(scene, policy, gate, seed)
        self._upstream = Refusing(scene.upstream, seed)


def test_five_minutes_of_refusals_without_a_hint_cost_few_calls_and_no_job():
    """There is nothing to measure, and the breaker does not count a 429: the pace rests, and each job waits."""
    refusing = UpstreamModel(outages_s=((20.0, 320.0),))
    batches = (Batch("all", 400), Batch("all", 1_000, at_s=21.0))
    history = RefusedPlay(
        Scene("refused", "refused", refusing, batches, 6_000.0), STANDARD, gate_for(STANDARD), 1
    ).run()
    assert (history.done, history.lost) == (1_400, 0)
    assert history.calls_between(290.0, 320.0) < 60


# -- broken twins --------------------------------------------------------------------------


class Deaf(SimulatedGates):
    """Says that it holds everybody for a hint, and does not."""

    def heard_hold(self, hold, call, now_s):
        return True


class DeafPlay(Play):
    def _new_gates(self):
        return Deaf(self._settings, self.history, self._scene.fleet)


def test_gates_that_do_not_hear_a_hint_are_early():
    slow = scene(
        30, upstream=UpstreamModel(rate_per_s=0.2, burst=1.0), fleet=Fleet(4, 10)
    )  # a 429 asks for up to 5 s
    assert played(slow).early == 0
    assert played(slow, cls=DeafPlay).early > 0


class OpenGates(SimulatedGates):
    """Lets everything pass, whatever the gates say."""

    def calls_free(self, worker, now_s):
        return 1_000


class OpenPlay(Play):
    def _new_gates(self):
        return OpenGates(self._settings, self.history, self._scene.fleet)


def test_gates_that_let_everything_pass_waste_and_are_early():
    history = played(scene(), cls=OpenPlay)
    assert history.early > 0
    assert history.wasted > 10 * played(scene()).wasted


class Blind(SimulatedGates):
    """Shows `decide` a gate that flows, whatever it is."""

    def view(self, ticket):
        return FLOWING


class BlindPlay(Play):
    def _new_gates(self):
        return Blind(self._settings, self.history, self._scene.fleet)


def test_a_decision_that_does_not_see_the_gate_spends_attempts_while_it_is_held():
    assert played(down(120.0)).spent_held == 0
    assert played(down(120.0), cls=BlindPlay).spent_held > 0
