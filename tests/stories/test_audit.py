"""The audit names what is wrong and whose it is; each damage is planted in a copy of a sound store."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure.stores.sqlite.reader import AUDIT
from perdure.surfaces.cli.root import cli
from tests.stories.kit import Story, played

pytestmark = pytest.mark.story


@dataclass(frozen=True)
class Damage:
    """One thing that must never be, as SQL on the job that it happens to.

    The subject that the audit must name is the job's id, except where that is gone with its row.
    """

    check: str
    sql: str
    subject: str = "{id}"


RUN = (
    "INSERT INTO perdure_runs (no, id, owner, pipeline, name, status, settings, created_at, changed_at) "
    "VALUES (1, 'r-1', '', 'walk', 'r', 'running', '{}', 1, 1)"
)

DAMAGES = {
    "a job row is deleted": Damage(
        "job_vanished", "DELETE FROM perdure_jobs WHERE no = :no", subject="job number {no} "
    ),
    "a processing job is held by a worker that is not there": Damage(
        "held_by_nobody",
        "UPDATE perdure_jobs SET state = 'processing', worker = 999, finished_at = NULL "
        "WHERE no = :no",
    ),
    "a processing job is held by a worker whose jobs were all settled": Damage(
        "held_by_nobody",
        "UPDATE perdure_jobs SET state = 'processing', finished_at = NULL, worker = 1 "
        "WHERE no = :no; UPDATE perdure_workers SET settled_at = dead_at WHERE no = 1",
    ),
    "a counter differs from the attempts": Damage(
        "counters_differ", "UPDATE perdure_jobs SET failures = failures + 1 WHERE no = :no"
    ),
    "an attempt began before it was due": Damage(
        "too_early",
        "UPDATE perdure_attempts AS n SET claimed_at = (SELECT a.due_at - 1000 FROM perdure_attempts AS a "
        "WHERE a.job = n.job AND a.number = 1 AND a.due_at IS NOT NULL) WHERE job = :no AND number = 2",
    ),
    "a stage was finished twice": Damage(
        "stage_done_twice",
        "UPDATE perdure_attempts SET status = 'success', counted = NULL "
        "WHERE job = :no AND status = 'retrying'",
    ),
    "an attempt has no job": Damage(
        "attempt_without_job",
        "UPDATE perdure_attempts SET job = 777 WHERE job = :no",
        subject="job number 777 ",
    ),
    "a checkpoint has no job": Damage(
        "checkpoint_without_job",
        "UPDATE perdure_checkpoints SET job = 777 WHERE job = :no",
        subject="job number 777 ",
    ),
    "a job succeeded without an attempt": Damage(
        "success_without_attempt",
        "DELETE FROM perdure_attempts WHERE job = :no AND state = 'succeeded'",
    ),
    "a job failed without an attempt": Damage(
        "failure_without_attempt",
        "UPDATE perdure_jobs SET state = 'failed', failed_reason = 'fatal' WHERE no = :no",
    ),
    "a job ended twice": Damage(
        "ended_twice",
        "UPDATE perdure_attempts SET state = 'failed' WHERE job = :no AND status = 'retrying'",
    ),
    "a token went backwards": Damage(
        "token_behind", "UPDATE perdure_jobs SET token = 1 WHERE no = :no"
    ),
    "a checkpoint is missing": Damage(
        "checkpoint_missing", "DELETE FROM perdure_checkpoints WHERE job = :no"
    ),
    "a job is in a state that does not exist": Damage(
        "state_of_no_table", "UPDATE perdure_jobs SET state = 'asleep' WHERE no = :no"
    ),
    "more was accepted than can be found": Damage(
        "books_balance", "UPDATE perdure_flows SET created = created + 1", subject="walk"
    ),
    "a depth is wrong": Damage(
        "depths_differ",
        "UPDATE perdure_depths SET succeeded = succeeded + 1",
        subject="work of pipeline walk",
    ),
    "a flow is wrong": Damage(
        "flows_differ", "UPDATE perdure_flows SET tokens_in = tokens_in + 1", subject="walk, stage"
    ),
    "what has happened is said of another minute": Damage(
        "minutes_differ", "UPDATE perdure_flows SET minute = minute - 3", subject="walk"
    ),
    "dead letters are wrongly counted": Damage(
        "deaths_differ",
        "INSERT INTO perdure_deaths VALUES ('', 'f', 'walk', 'work', 'fatal', 'k', 'c', 0, 1, 1, 1, 1)",
        subject="f of pipeline walk",
    ),
    "a job is not in the lists of its owner": Damage(
        "owned_differs", "UPDATE perdure_jobs SET owner = 'ann' WHERE no = :no"
    ),
    "a payload is kept of a life that has not ended": Damage(
        "payload_astray", "INSERT INTO perdure_payloads VALUES (:no, 1, '1')"
    ),
    "the open jobs of an owner are wrongly counted": Damage(
        "owners_differ", "INSERT INTO perdure_owners VALUES ('ann', 0, 1)", subject="ann"
    ),
    "a job that did not fail was discarded": Damage(
        "discarded_not_failed", "UPDATE perdure_jobs SET discarded_at = 1 WHERE no = :no"
    ),
    "two jobs have one key": Damage(
        "key_twice",
        "DROP INDEX perdure_jobs_key; UPDATE perdure_jobs SET key = 'k' WHERE no IN (:no, :no + 1)",
    ),
    "a job waits in a lane that is not there": Damage(
        "lane_of_no_lane", "UPDATE perdure_jobs SET lane = 777 WHERE no = :no"
    ),
    "the counters of earlier stages are no JSON": Damage(
        "past_unreadable", "UPDATE perdure_jobs SET past = 'oops' WHERE no = :no"
    ),
    "a job is of a run that is not there": Damage(
        "run_of_no_run", "UPDATE perdure_jobs SET run = 777 WHERE no = :no"
    ),
    "a run counts what it does not have": Damage(
        "run_counts_differ",
        f"{RUN}; INSERT INTO perdure_run_counts (run, writer, total) VALUES (1, 0, 1)",
        subject="r-1",
    ),
    "a run counts failures of a kind that no job has": Damage(
        "run_kinds_differ",
        f"{RUN}; INSERT INTO perdure_run_kinds VALUES (1, 0, 'network', 1)",
        subject="r-1",
    ),
    "a run has spent what no attempt has": Damage(
        "run_spending_differs",
        f"{RUN}; INSERT INTO perdure_run_counts (run, writer, cost_nusd) VALUES (1, 0, 7)",
        subject="r-1",
    ),
    "a run is completed and has no end": Damage(
        "run_end_and_status",
        f"{RUN}; UPDATE perdure_runs SET status = 'completed', sealed_at = 1",
        subject="r-1",
    ),
    "a run is over before all of its items were in": Damage(
        "run_ended_early",
        f"{RUN}; UPDATE perdure_runs SET status = 'completed', ended_at = 1",
        subject="r-1",
    ),
    "a capture is of an attempt that is not there": Damage(
        "artifact_without_attempt",
        "INSERT INTO perdure_artifacts (id, job, token, stage, kind, media_type, content, saved_at) "
        "VALUES ('a-1', :no, 777, 'work', 'raw', 'text/plain', x'00', 1)",
    ),
    "an attempt follows the last one allowed": Damage(
        "attempts_beyond_limit",
        "UPDATE perdure_attempts SET why = 'retry' || char(59) || ' attempt 1 of 1 failed' "
        "WHERE job = :no AND status = 'retrying'",
    ),
    "something was refused by a bulk operation that is not there": Damage(
        "refusal_of_no_bulk",
        "INSERT INTO perdure_bulk_refusals VALUES (777, :no, 'why not')",
        subject="bulk number 777 ",
    ),
    "an attempt between two others is gone": Damage(
        "attempt_missing", "DELETE FROM perdure_attempts WHERE job = :no AND status = 'retrying'"
    ),
    "an attempt that finished an earlier stage is gone": Damage(
        "checkpoint_without_attempt",
        "DELETE FROM perdure_attempts WHERE job = :no AND status = 'success' AND state <> 'succeeded'",
    ),
    "a job has been retried by hand and has had one life": Damage(
        "lives_differ", "UPDATE perdure_jobs SET retries_manual = 1 WHERE no = :no"
    ),
    "a job is driven again in a run that has not had it": Damage(
        "redrive_differs", f"{RUN}; UPDATE perdure_jobs SET redrive_run = 1 WHERE no = :no"
    ),
    "a re-drive has done what its run has not": Damage(
        "bulk_done_differs",
        f"{RUN}; INSERT INTO perdure_bulks (no, id, verb, status, filter, begun_by, reason, done, "
        "begun_at, changed_at, run, owner) VALUES (1, 'b-1', 'redrive', 'done', '{}', 'ann', 'why', 1, 1, 1, 1, '')",
        subject="b-1",
    ),
    "a run comes from one that is not there": Damage(
        "run_of_no_run", f"{RUN}; UPDATE perdure_runs SET parent = 777", subject="r-1"
    ),
    "a finished job still waits": Damage(
        "state_and_fields", "UPDATE perdure_jobs SET ready = 1 WHERE no = :no"
    ),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Iterator[Story]:
    """Eight finished jobs, of which the fourth needed a second try."""
    with played(tmp_path_factory.mktemp("sound")) as story:
        plots = [{"fail_times": 1} if place == 3 else {} for place in range(8)]
        story.enqueue("walk", [{"work": plot} for plot in plots])
        worker = story.worker("a", lease_s=2.0)
        assert story.all_ended(within_s=60) == {"succeeded": 8}
        worker.kill(15)
        assert worker.exit_status(within_s=30) == 0
        yield story


def copied(sound: Story, folder: Path) -> Path:
    """A copy that can be damaged; the log is in the file, for nobody has it open."""
    copy = folder / "copy.db"
    writing = sqlite3.connect(sound.file)
    with sqlite3.connect(copy) as target:
        writing.backup(target)
    writing.close()
    target.close()
    return copy


def plant(file: Path, sql: str, no: int) -> None:
    """Do it behind the store's back; every statement must change something."""
    raw = sqlite3.connect(file)
    raw.execute("PRAGMA ignore_check_constraints = ON")
    raw.execute("PRAGMA foreign_keys = OFF")
    for statement in sql.split(";"):
        changed = raw.execute(statement, {"no": no} if ":no" in statement else {}).rowcount
        assert changed != 0  # -1 is a change of the schema
    raw.commit()
    raw.close()


def test_a_sound_store_passes(sound, tmp_path):
    copy = copied(sound, tmp_path)
    done = sound.perdure("audit", "--store", f"sqlite:///{copy}")
    assert (done.returncode, done.stderr) == (0, "")
    books, covered, verdict = done.stdout.splitlines()
    assert books == (
        "accepted 8 = queued 0 + processing 0 + succeeded 8 + failed 0 + cancelled 0 + pruned 0"
    )
    assert covered.startswith(f"{len(AUDIT)} checks over ")
    assert verdict == "clean"


@pytest.mark.parametrize("name", DAMAGES)
def test_the_audit_names_the_check_and_the_job_when(sound, tmp_path, name):
    damage = DAMAGES[name]
    copy = copied(sound, tmp_path)
    no, id = sound.rows("SELECT no, id FROM perdure_jobs ORDER BY no LIMIT 1 OFFSET 3")[0]
    plant(copy, damage.sql, no)
    done = CliRunner().invoke(cli, ["audit", "--store", f"sqlite:///{copy}"])
    assert done.exit_code == 1, done.output
    beginning = f"{damage.check}: {damage.subject.format(id=id, no=no)}"
    assert [line for line in done.stdout.splitlines() if line.startswith(beginning)], done.stdout


def test_every_check_of_the_audit_has_a_damage_that_it_finds():
    assert {damage.check for damage in DAMAGES.values()} == set(AUDIT)
