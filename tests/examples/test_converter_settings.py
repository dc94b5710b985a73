"""Every environment name of the converter's document does something: one play under three environments.

They are names of settings as Perdure knows them, its own and the application's: it finds, checks and shows them. What
WORKER_CONCURRENCY and WORKER_LEASE_TTL_SEC do is seen in test_converter_worker.py.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from examples.converter.settings import (
    ATTEMPTS_MAX,
    BASE_DELAY_S,
    CIRCUIT_FAIL_THRESHOLD,
    CIRCUIT_WINDOW,
    JITTER_S_MAX,
    NAMES,
)

from perdure import AttemptView, ConfigError
from tests.examples.converter_kit import (
    ROOT,
    WORKER,
    Trial,
    pdf_of,
    settings_in,
    trial,
    unset,
    until,
)

DOCUMENT = {
    "RETRY_MAX_ATTEMPTS", "RETRY_BASE_DELAY_MS", "RETRY_JITTER_MAX_MS", "WORKER_LEASE_TTL_SEC", "GATEWAY_TIMEOUT_MS",
    "WORKER_CONCURRENCY", "CIRCUIT_WINDOW", "CIRCUIT_FAIL_THRESHOLD", "CIRCUIT_COOLDOWN_MS", "DATABASE_URL", "GATEWAY_URL",
    "UPLOADS_DIR", "RESULTS_DIR",
}  # fmt: skip
WHERE = {
    "DATABASE_URL": "postgresql://x/x",
    "GATEWAY_URL": "http://gateway",
    "UPLOADS_DIR": "up",
    "RESULTS_DIR": "down",
}
PLAIN = {"GATEWAY_TIMEOUT_MS": "20000", "WORKER_CONCURRENCY": "1"}
CHANGED = {
    "WORKER_CONCURRENCY": "1",
    "RETRY_MAX_ATTEMPTS": "2",
    "RETRY_BASE_DELAY_MS": "200",
    "RETRY_JITTER_MAX_MS": "0",
    "GATEWAY_TIMEOUT_MS": "3000",  # a busy machine converts a page in less
    "CIRCUIT_WINDOW": "3",
    "CIRCUIT_FAIL_THRESHOLD": "1.0",
    "CIRCUIT_COOLDOWN_MS": "600000",
}
TOUCHY = {**CHANGED, "CIRCUIT_FAIL_THRESHOLD": "0.3", "CIRCUIT_COOLDOWN_MS": "900000"}


@dataclass
class Played:
    """What a play has come to."""

    failed: list[AttemptView]
    slow: list[AttemptView]
    held_after_failures: bool
    held_s: float | None
    files: int
    calls: int
    folders: tuple[list[Path], list[Path]]


def play(trial: Trial) -> Played:
    """One file that is converted, one whose gateway fails until it fails, and one that takes four seconds."""
    ann = trial.user()
    good = trial.job(ann.upload(pdf_of("good")))
    until("the first is complete", lambda: good.state == "succeeded")
    trial.order(status=502, code="X")
    bad = trial.job(ann.upload(pdf_of("bad")))
    while bad.state != "failed" and trial.converter.app.gate("gateway").flows:
        seen = len(bad.attempts())
        if seen:
            bad.run_now()
        until(
            "it is tried",
            lambda seen=seen: len(bad.attempts()) > seen and bad.state != "processing",
        )
    trial.order(slow_s=4.0)
    held = not trial.converter.app.gate("gateway").flows
    slow = trial.job(ann.upload(pdf_of("slow")))
    if not held:
        until("the slow one is tried", slow.attempts)
    return Played(
        bad.attempts(),
        slow.attempts(),
        held,
        held_s(trial),
        sum(count for (count,) in ask(trial, "SELECT count(*) FROM converter_files")),
        trial.traffic()["calls"],
        tuple(sorted(one.iterdir()) for one in (trial.uploads, trial.results)),
    )


def ask(trial: Trial, statement: str) -> list[tuple]:
    with psycopg.connect(trial.database_url) as cx:
        return cx.execute(statement).fetchall()


def held_s(trial: Trial) -> float | None:
    """For how long the gate was held when it was."""
    until_at = trial.converter.app.gate("gateway").held_until
    trips = ask(
        trial, "SELECT to_timestamp(done_at / 1e6) FROM perdure_audit_log WHERE verb = 'trip gate'"
    )
    return None if until_at is None else (until_at - trips[-1][0]).total_seconds()


@pytest.fixture(scope="module")
def plays(postgres, template, tmp_path_factory) -> dict[str, Played]:
    """Each in a database and folders of its own."""
    played = {}
    for name, environment in {"plain": PLAIN, "changed": CHANGED, "touchy": TOUCHY}.items():
        folder, url = tmp_path_factory.mktemp(name), postgres.create_database(template=template)
        where = {"UPLOADS_DIR": f"{folder}/up", "RESULTS_DIR": f"{folder}/down"}
        with trial(folder, url, **where, **environment) as one, one.working():
            played[name] = play(one)
        postgres.drop_database(url)
    return played


def test_the_environment_says_how_often_and_after_which_waits_a_file_is_tried(plays):
    plain, changed = plays["plain"].failed, plays["changed"].failed
    assert (len(plain), len(changed)) == (3, 2)  # RETRY_MAX_ATTEMPTS
    assert plain[0].delay_s >= 5.0
    assert plain[1].delay_s >= 10.0
    assert changed[0].delay_s == 0.2  # RETRY_BASE_DELAY_MS, and RETRY_JITTER_MAX_MS adds nothing
    assert plain[0].delay_s != 5.0


def test_the_environment_says_how_long_the_gateway_may_take(plays):
    assert [one.status for one in plays["plain"].slow] == ["success"]
    assert plays["changed"].slow[0].code == "GW_TIMEOUT"


def test_the_environment_says_when_the_breaker_holds_and_for_how_long(plays):
    plain, changed, touchy = plays["plain"], plays["changed"], plays["touchy"]
    assert (plain.held_after_failures, plain.held_s) == (
        False,
        None,
    )  # four calls are no window of 20
    assert (
        not changed.held_after_failures
    )  # two of the last three have failed, and 1.0 is all of them
    assert changed.held_s == pytest.approx(
        600.0, abs=5.0
    )  # the third did: CIRCUIT_WINDOW, CIRCUIT_COOLDOWN_MS
    assert touchy.held_after_failures  # CIRCUIT_FAIL_THRESHOLD
    assert touchy.slow == []
    assert touchy.held_s == pytest.approx(900.0, abs=5.0)


def test_the_environment_says_where_rows_and_files_are_and_who_is_called(plays):
    for one in plays.values():
        uploads, results = one.folders
        assert (one.files, len(uploads)) == (3, 3)
        assert {path.parent.name for path in uploads} == {"up"}
        assert {path.parent.name for path in results} == {"down"}
    assert [one.calls for one in plays.values()] == [5, 4, 3]


def test_every_name_of_the_document_is_a_name_of_a_setting():
    ours = {"RESULTS_KEPT_SEC", "UPLOAD_MAX_BYTES"}
    assert {one.variable for one in NAMES} == DOCUMENT | ours
    assert len(NAMES) == len(DOCUMENT | ours)


def test_a_job_is_kept_for_longer_than_what_it_has_made():
    days = 86_400.0

    def kept_s(**more: str) -> tuple[float | None, ...]:
        settings = settings_in({**WHERE, **more})
        return tuple(settings[f"retain_{one}_s"] for one in ("succeeded", "cancelled", "discarded"))

    assert kept_s() == (30 * days,) * 3
    assert kept_s(RESULTS_KEPT_SEC=str(60 * days)) == (61 * days,) * 3
    assert kept_s(PERDURE_RETAIN_SUCCEEDED_S="forever", RESULTS_KEPT_SEC="9e6")[0] is None
    assert kept_s(PERDURE_RETAIN_CANCELLED_S="172800") == (30 * days, 2 * days, 30 * days)
    with pytest.raises(ConfigError, match="PERDURE_RETAIN_CANCELLED_S must be at least 172800: "):
        kept_s(PERDURE_RETAIN_CANCELLED_S="172799")


def test_without_them_the_document_s_numbers_hold():
    plain = settings_in(WHERE)
    assert (plain[ATTEMPTS_MAX], plain[BASE_DELAY_S], plain[JITTER_S_MAX]) == (3, 5.0, 5.0)
    assert (plain[CIRCUIT_WINDOW], plain[CIRCUIT_FAIL_THRESHOLD]) == (20, 0.5)
    assert plain["lease_ttl_s"] / 3 == 30.0  # the lease of a long job is extended every 30 s


def test_what_is_in_force_is_shown_with_its_variable_and_perdure_s_own_name_beats_it():
    said = {"WORKER_CONCURRENCY": "7", "WORKER_LEASE_TTL_SEC": "60", "PERDURE_LEASE_TTL_S": "45"}
    settings = settings_in({**WHERE, **said, "RETRY_BASE_DELAY_MS": "200"})
    assert (settings["concurrency"], settings.origin("concurrency")) == (
        7,
        "variable WORKER_CONCURRENCY",
    )
    assert (settings["lease_ttl_s"], settings.origin("lease_ttl_s")) == (
        45.0,
        "variable PERDURE_LEASE_TTL_S",
    )
    assert settings.origin(BASE_DELAY_S) == "variable RETRY_BASE_DELAY_MS, in ms"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("RETRY_MAX_ATTEMPTS", "three", "RETRY_MAX_ATTEMPTS is 'three'; it must be a whole number"),
        ("RETRY_BASE_DELAY_MS", "-1", "RETRY_BASE_DELAY_MS is '-1'; it must be at least 0 ms"),
        ("WORKER_LEASE_TTL_SEC", "nan", "WORKER_LEASE_TTL_SEC is 'nan'; it must be a number"),
        ("CIRCUIT_FAIL_THRESHOLD", "50", "CIRCUIT_FAIL_THRESHOLD is '50'; it must be at most 1"),
        ("CIRCUIT_COOLDOWN_MS", "1", "CIRCUIT_COOLDOWN_MS is '1'; it must be at least 1000 ms"),
        ("GATEWAY_URL", "gateway:80", "variable GATEWAY_URL must begin with http:// or https://"),
        ("DATABASE_URL", "mysql://me:canary@x/x", "variable DATABASE_URL must begin with postgres"),
        ("DATABASE_URL", "", "DATABASE_URL is not set; it is needed: "),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_name_with_the_remedy(name, value, words):
    with pytest.raises(ConfigError) as refused:
        settings_in({**WHERE, name: value})
    assert words in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("command", "nonsense", "words"),
    [
        (
            ("uvicorn", "--factory", "examples.converter.api:make_api", "--port", "0"),
            {"UPLOADS_DIR": "/dev/null/up"},
            "UPLOADS_DIR is '/dev/null/up': Not a directory; it must be a folder that can be wri",
        ),
        (WORKER, {"CIRCUIT_WINDOW": "many"}, "CIRCUIT_WINDOW is 'many'; it must be a whole number"),
    ],
    ids=["site", "worker"],
)
def test_a_process_that_is_told_nonsense_says_so_and_ends(command, nonsense, words):
    environment = {**unset(os.environ), **WHERE, **nonsense}
    ended = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode != 0
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
