"""The converter's breaker: half of the last calls fail, dispatch stops, files wait, and a health probe ends it."""

import logging

import psycopg

from tests.examples.converter_kit import Trial, figures_of, pdf_of, until

BANNER = "<strong>The converter is busy.</strong> Your files will go on by themselves."


def gate_log(trial: Trial) -> list[str]:
    with psycopg.connect(trial.database_url) as cx:
        lines = cx.execute(
            "SELECT verb FROM perdure_audit_log WHERE subject = 'gateway' ORDER BY no"
        )
        return [verb for (verb,) in lines]


def is_held(trial: Trial) -> bool:
    return not trial.converter.app.gate("gateway").flows


def probed(trial: Trial, verb: str, times: int) -> None:
    until(f"so many times: {verb}", lambda: gate_log(trial).count(verb) >= times)


def test_in_an_outage_nothing_is_dispatched_files_wait_and_it_ends_by_itself(
    make_converter_trial, caplog
):
    caplog.set_level(logging.INFO, logger="perdure")
    with make_converter_trial(
        CIRCUIT_WINDOW="4", CIRCUIT_COOLDOWN_MS="1000", RETRY_MAX_ATTEMPTS="9", RETRY_BASE_DELAY_MS="50",
        RETRY_JITTER_MAX_MS="50",
    ) as trial, trial.working():  # fmt: skip
        ann = trial.user()
        before = {ann.upload(pdf_of(f"good {n}")) for n in range(2)}
        until("they are complete", lambda: {ann.status(one) for one in before} == {"complete"})
        trial.order(status=400, code="X")
        dead = ann.upload(pdf_of("a dead letter"))
        until("it has failed", lambda: ann.status(dead) == "failed")
        assert (BANNER in ann.get("/").text, is_held(trial)) == (False, False)

        trial.order(status=503)
        waiting = [ann.upload(pdf_of(f"file {n}")) for n in range(6)]
        until("the gate is held", lambda: is_held(trial))
        until(
            "nothing is in work",
            lambda: "processing" not in {trial.job(one).state for one in waiting},
        )
        calls, failures = trial.traffic()["calls"], failures_of(trial, waiting)
        probed(trial, "probe failed", 2)  # it is looked at again and again, without a file
        waiting.append(ann.upload(pdf_of("while it is held")))
        assert ann.post(f"/api/jobs/{dead}/retry").status_code == 200
        assert trial.traffic()["calls"] == calls
        assert failures_of(trial, waiting) == failures
        assert {job["status"] for job in ann.jobs().values()} == {"queued", "complete"}
        until("the banner is shown", lambda: BANNER in ann.get("/").text)
        assert figures_of(trial)("perdure_gate_held_seconds", gate="gateway") > 1.0
        assert ann.get("/api/jobs").json()["gateway"] == "held"

        trial.order()
        until(
            "all are complete",
            lambda: {ann.status(one) for one in (*waiting, dead)} == {"complete"},
        )
        until("the banner is gone", lambda: BANNER not in ann.get("/").text)
        verbs = gate_log(trial)
        assert verbs[verbs.index("trip gate") :][-1] == "flow gate"
        assert verbs.count("probe passed") == 2  # and the third that passes lets it flow
        assert figures_of(trial)("perdure_gate_held_seconds", gate="gateway") == 0
    told = [one.getMessage() for one in caplog.records if "gate_changed" in one.getMessage()]
    assert any("gate_state=held" in line for line in told)
    assert any("gate_state=flowing" in line for line in told)


def failures_of(trial: Trial, jobs: list[str]) -> int:
    return sum(trial.job(one).view().counters.failures for one in jobs)
