"""Every line of the doctor: when it is well, when it warns, when it fails, and that it says what to do."""

from datetime import UTC, datetime, timedelta

import pytest

from perdure.model.diagnoses import StoreCondition
from perdure.model.states import FailedReason
from perdure.model.views import DeathCount, Depth, Flow
from perdure.rules.diagnosis import process_setup, store_condition, unmoved_work
from perdure.rules.diagnosis.lines import first_few, time_words

NOW = datetime(2030, 1, 1, 12, 30, 30, tzinfo=UTC)
GB = 1024**3


def sqlite(version=(3, 51, 3), **facts) -> StoreCondition:
    return StoreCondition("SQLite", version, **facts)


def postgres(version=(18, 1), **facts) -> StoreCondition:
    return StoreCondition("PostgreSQL", version, **facts)


def flow(minutes_ago: int = 1, **counts: int) -> Flow:
    names = (
        "created",
        "succeeded",
        "failed",
        "cancelled",
        "revived",
        "attempts",
        "retries",
        "waits",
    )
    numbers = [counts.get(name, 0) for name in (*names, "tokens_in", "tokens_out", "cost_nusd")]
    minute = NOW.replace(second=0) - timedelta(minutes=minutes_ago)
    return Flow("p", "one", minute, *numbers)


def death(letters: int, reason: FailedReason = FailedReason.FATAL) -> DeathCount:
    return DeathCount("p", "one", reason, "auth", "auth", letters, letters)


def depth(processing: int) -> Depth:
    return Depth("q", "p", "one", 3, 0, 0, processing, 0, 0, 0)


def lease(**given):
    usual = {
        "lease_ttl_s": 15.0,
        "grace_s": 30.0,
        "overrun_s": 60.0,
        "overrun_said": False,
        "round_trip_s": 0.001,
    }
    return process_setup.lease_diagnosis(**usual | given)


def lanes(waited_s=60.0, processing=0, flows=(), workers=1, known=None):
    stages = [unmoved_work.WaitingStage("q", "p", "one", 3, waited_s, known)]
    unmoved = unmoved_work.unmoved_stages(stages, [depth(processing)], flows, NOW)
    return unmoved_work.lanes_diagnosis(unmoved, workers)


LINES = [
    # what was looked at, how bad it is, words that it has to say
    (process_setup.settings_diagnosis(None, [], []), "ok", "no settings file"),
    (process_setup.settings_diagnosis("perdure.toml", [], []), "ok", "perdure.toml"),
    (process_setup.settings_diagnosis(None, [], [("PERDURE_STOR", "PERDURE_STORE")]), "warn", "PERDURE_STOR sets nothing"),
    (process_setup.settings_diagnosis(None, ["poll_s is 9"], []), "fail", "poll_s is 9"),
    (lease(), "ok", "a beat every 5 s"),
    (lease(overrun_s=44.0), "ok", ""),
    (lease(overrun_s=45.0, overrun_said=True), "ok", ""),
    (lease(overrun_s=44.0, overrun_said=True), "warn", "overrun_s is 44 and has no effect"),
    (lease(round_trip_s=1.4), "ok", ""),
    (lease(round_trip_s=1.6), "warn", "the store takes 1.6 s to answer"),
    (process_setup.grace_diagnosis(30.0, {}), "ok", ""),
    (process_setup.grace_diagnosis(30.0, {"ask": 60.0}), "ok", "60 s"),
    (process_setup.grace_diagnosis(30.0, {"ask": 60.1, "quick": 1.0}), "warn", "'ask' 60.1 s"),
    (process_setup.retries_diagnosis([]), "ok", "are not seen"),
    (process_setup.retries_diagnosis(["stage 'ask': client"]), "warn", "stage 'ask'"),
    (process_setup.listen_diagnosis("127.0.0.1", tokens=0, good=0), "ok", "this machine only"),
    (process_setup.listen_diagnosis("127.0.0.2", tokens=0, good=0), "ok", "this machine only"),
    (process_setup.listen_diagnosis("[::1]", tokens=0, good=0), "ok", "this machine only"),
    (process_setup.listen_diagnosis("localhost", tokens=0, good=0), "ok", "this machine only"),
    (process_setup.listen_diagnosis("0.0.0.0", tokens=0, good=0), "fail", "has no token"),
    (process_setup.listen_diagnosis("jobs.example.com", tokens=2, good=0), "fail", "no token of the store is good"),
    (process_setup.listen_diagnosis("::", tokens=2, good=1), "ok", "by 1 good token;"),
    (store_condition.version_diagnosis(sqlite()), "ok", "SQLite 3.51.3"),
    (store_condition.version_diagnosis(sqlite((3, 51, 2))), "warn", "only other programs that write to the file"),
    (store_condition.version_diagnosis(postgres()), "ok", "PostgreSQL 18.1"),
    (store_condition.version_diagnosis(postgres((15, 9))), "ok", ""),
    (store_condition.version_diagnosis(postgres((19, 0))), "warn", "newer than what Perdure was tested with"),
    (store_condition.clock_diagnosis(sqlite(), 0.0, 0.0), "ok", "is this machine's"),
    (store_condition.clock_diagnosis(postgres(), 1.9, 0.01), "ok", "agrees"),
    (store_condition.clock_diagnosis(postgres(), 2.1, 0.01), "warn", "2.1 s ahead of"),
    (store_condition.clock_diagnosis(postgres(), -2.1, 0.01), "warn", "2.1 s behind"),
    (store_condition.clock_diagnosis(postgres(), 3.0, 4.0), "ok", ""),
    (store_condition.clock_diagnosis(postgres(), 301.0, 0.01), "fail", "5 min ahead of"),
    (store_condition.file_system_diagnosis(sqlite(file_system="ext4")), "ok", "ext4"),
    (store_condition.file_system_diagnosis(sqlite()), "ok", "not known"),
    (store_condition.file_system_diagnosis(sqlite(file_system="tmpfs")), "warn", "in memory (tmpfs)"),
    (store_condition.file_system_diagnosis(sqlite(file_system="nfs4", on_network=True)), "fail", "(nfs4)"),
    (store_condition.disk_diagnosis(postgres()), "ok", "not seen from here"),
    (store_condition.disk_diagnosis(sqlite(free_bytes=GB)), "ok", "1.00 GB are free"),
    (store_condition.disk_diagnosis(sqlite(free_bytes=GB - 1)), "warn", "only 1.00 GB"),
    (store_condition.disk_diagnosis(sqlite(free_bytes=GB // 8)), "warn", "only 0.12 GB"),
    (store_condition.disk_diagnosis(sqlite(free_bytes=GB // 8 - 1)), "fail", "only 0.12 GB"),
    (store_condition.rights_diagnosis(sqlite()), "ok", ""),
    (store_condition.rights_diagnosis(sqlite(read_only=True)), "fail", "takes no writes"),
    (store_condition.rights_diagnosis(postgres(rights_missing=("DELETE on perdure_jobs",))), "fail", "lacks DELETE on perdure_jobs"),
    (store_condition.vacuum_diagnosis(postgres()), "ok", ""),
    (store_condition.vacuum_diagnosis(postgres(idle_vacuum=("autovacuum is off",))), "warn", "autovacuum is off"),
    (store_condition.snapshot_diagnosis(postgres()), "ok", "none is old"),
    (store_condition.snapshot_diagnosis(postgres(sessions_hidden=2)), "ok", "2 sessions of other roles are not seen"),
    (store_condition.snapshot_diagnosis(postgres(snapshot_s=599.0, snapshot_of="pid 7")), "ok", ""),
    (store_condition.snapshot_diagnosis(postgres(snapshot_s=600.0, snapshot_of="pid 7")), "warn", "for 10 min (pid 7)"),
    (store_condition.snapshot_diagnosis(postgres(slots_left=("old",))), "warn", "nobody uses keep dead rows: old"),
    (store_condition.pooler_diagnosis(postgres(), 1.0), "ok", "none"),
    (store_condition.pooler_diagnosis(postgres(pooled=True), 1.0), "ok", "by polling, within 1 s"),
    (store_condition.pooler_diagnosis(postgres(settings_lost=("jit",)), 1.0), "ok", "none"),
    (store_condition.pooler_diagnosis(postgres(pooled=True, settings_lost=("jit",)), 1.0), "warn", "not in force: jit"),
    (unmoved_work.gates_diagnosis([]), "ok", "none is held"),
    (unmoved_work.gates_diagnosis([unmoved_work.HeldGate("v", 899.0, "down", 5)]), "ok", "1 held, none for long"),
    (unmoved_work.gates_diagnosis([unmoved_work.HeldGate("v", 900.0, "down", 5)]), "warn", "v for 15 min, 5 jobs behind it (down)"),
    (unmoved_work.dead_diagnosis([], []), "ok", "0 in all"),
    (unmoved_work.dead_diagnosis([flow(failed=9)], [death(9)]), "ok", "9 in all, 9 in the last hour"),
    (unmoved_work.dead_diagnosis([flow(failed=9), flow(2, failed=1)], [death(12)]), "warn", "10 more in the last hour, 12 in all: p/one auth 12"),
    (unmoved_work.dead_diagnosis([flow(failed=11)], [death(4), death(7, FailedReason.EXHAUSTED)]), "warn", "11 in all: p/one auth 11"),
    (unmoved_work.dead_diagnosis([flow(failed=15, revived=6)], [death(9)]), "ok", ""),
    (unmoved_work.runs_diagnosis([], 2), "ok", "2 under way"),
    (unmoved_work.runs_diagnosis(["run march is fed by nobody"], 2), "warn", "run march"),
    (lanes(), "warn", "3 of p/one in queue q for 60 s"),
    (lanes(workers=0), "warn", "no worker is at work"),
    (lanes(known=False), "warn", "which this app does not have"),
    (lanes(waited_s=59.0), "ok", "workers alive: 1"),
    (lanes(processing=1), "ok", ""),
    (lanes(flows=[flow(4, attempts=1)]), "ok", ""),
    (lanes(flows=[flow(5, attempts=1)]), "warn", ""),
    (lanes(flows=[flow(1, created=3)]), "warn", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "severity", "words"), LINES, ids=lambda one: getattr(one, "check", str(one)[:30])
)
def test_a_line_says_how_bad_it_is_and_what_to_do(said, severity, words):
    told = f"{said.text} {said.remedy}"
    assert said.severity == severity
    assert words in told
    assert bool(said.remedy) is (severity != "ok")


def test_every_line_has_a_row_in_which_it_is_well_and_one_in_which_it_is_not():
    seen: dict[str, set[bool]] = {}
    for said, severity, _ in LINES:
        seen.setdefault(said.check, set()).add(severity == "ok")
    assert [check for check, both in seen.items() if both != {True, False}] == []
    assert set(seen) == {
        "settings", "lease", "grace", "retries", "listen", "version", "clock", "file_system", "disk",
        "rights", "autovacuum", "oldest_transaction", "pooler", "gates", "dead_letters", "runs", "lanes",
    }  # fmt: skip


def test_only_the_first_few_of_many_are_named():
    assert first_few(["a", "b", "c"]) == "a; b; c"
    assert first_few(["a", "b", "c", "d", "e"]) == "a; b; c; and 2 more"


@pytest.mark.parametrize(
    ("length_s", "words"),
    [(0.5, "0.5 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (200_000, "2 d")],
)
def test_a_length_of_time_has_the_unit_that_fits(length_s, words):
    assert time_words(length_s) == words
