"""The mistakes 3 to 6 of the real system behind the document, each tried against this one; 1 and 2 are in `test_crashes.py`."""

import inspect
import re
from pathlib import Path

import pytest
from examples.reports.faults import FAULTS, Fault
from tests.examples.reports.conftest import TIMEOUT_S, Reports
from tests.stories.kit import until

# A database that fails by plan: the last write of a file with such a name.
TRIGGER = """
CREATE TABLE planned (name text PRIMARY KEY, state text NOT NULL, times integer NOT NULL, count text NOT NULL);
CREATE FUNCTION fail_by_plan() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE plan planned;
BEGIN
    SELECT * INTO plan FROM planned WHERE name = NEW.name;
    IF FOUND AND nextval(plan.count) <= plan.times THEN
        IF plan.state = 'cut' THEN
            PERFORM pg_terminate_backend(pg_backend_pid());
            PERFORM pg_sleep(60);
        END IF;
        RAISE EXCEPTION 'by plan' USING ERRCODE = plan.state;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fail_by_plan BEFORE UPDATE OF report_key ON files FOR EACH ROW
    WHEN (NEW.name NOT LIKE 'commit%') EXECUTE FUNCTION fail_by_plan();
CREATE CONSTRAINT TRIGGER fail_at_commit AFTER UPDATE OF report_key ON files DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.name LIKE 'commit%') EXECUTE FUNCTION fail_by_plan();
"""


@pytest.fixture(scope="module")
def failing_database(reports: Reports) -> Reports:
    with reports.files.database() as connection:
        connection.execute(TRIGGER)
    return reports


def plan(reports: Reports, name: str, state: str, times: int = 1) -> None:
    """Sequences count on when a transaction is rolled back."""
    count = f"count_{name.partition('.')[0]}"
    with reports.files.database() as connection:
        connection.execute(f"CREATE SEQUENCE {count}")
        connection.execute(
            "INSERT INTO planned VALUES (%s, %s, %s, %s)", (name, state, times, count)
        )


# -- 3: the last write ---------------------------------------------------------------------------


STATES = ["40001", "cut", *(pytest.param(one, marks=pytest.mark.long) for one in ("08006", "53300", "40P01", "57P01"))]  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_3_a_fault_of_the_database_at_the_last_write_is_tried_again_and_the_report_is_kept(
    working, failing_database, state
):
    name = f"blip{state.lower()}.txt"
    plan(working, name, state)
    id = working.upload(name=name)
    file = working.ended(id)
    assert (file["status"], file["processing"]["attempts"]) == ("succeeded", 2)
    assert working.attempts(id)[-2:] == [
        ("save", "retrying", "db_update_failed"),
        ("save", "success", None),
    ]
    assert working.calls(id) == 1  # and nobody paid twice
    puts = [one for one in working.s3.requests if one.method == "PUT" and name in one.path]
    assert len(puts) == 2  # the transcript and the report, each once


def test_3_the_last_row_and_the_end_of_the_job_are_one_transaction(working, failing_database):
    """The commit itself fails, after both were written: neither is there, and the next attempt writes both."""
    plan(working, "commit.txt", "40001")
    id = working.upload(name="commit.txt")
    file = working.ended(id)
    assert (file["status"], file["processing"]["attempts"]) == ("succeeded", 2)
    assert working.attempts(id)[-2:] == [("save", "retrying", "db_update_failed"), ("save", "success", None)]  # fmt: skip


def test_3_what_no_waiting_mends_is_fatal_there_too(working, failing_database):
    plan(working, "broken.txt", "23514", times=9)
    file = working.ended(working.upload(name="broken.txt"))
    assert (file["status"], file["error_code"]) == ("failed", "db_update_failed")
    assert file["processing"]["attempts"] == 1


# -- 4 and 5: one policy, one timeout --------------------------------------------------------------


def test_4_each_attempt_is_one_call_whatever_it_meets(working):
    id = working.upload(FAULTS["503"], FAULTS["connection reset"])
    assert working.ended(id)["status"] == "succeeded"
    tried = [one for one in working.attempts(id) if one[0] == "ask"]
    assert working.calls(id) == len(tried) == 3
    name = "thrice.txt"
    working.s3.plan("GET", name, *[FAULTS["S3 SlowDown at a read"]] * 2)
    id = working.upload(name=name)
    assert working.ended(id)["status"] == "succeeded"
    asked = [one for one in working.s3.requests if one.method == "GET" and one.path.endswith(name)]
    assert len(asked) == len([one for one in working.attempts(id) if one[0] == "read"]) == 3


def test_5_there_is_one_timeout_and_every_client_has_it(working):
    id = working.upload()
    working.ended(id)
    name = working.row(id)["name"]
    asked = next(one for one in working.model.requests if one.headers.get("x-request-id") == name)
    assert 0 < float(asked.headers["x-stainless-read-timeout"]) <= TIMEOUT_S
    stages = working.app._session.catalogue.pipeline("reports").stages
    assert {one.timeout_s for one in stages} == {TIMEOUT_S}
    s3 = working.module["objects"].bucket().client_options
    assert s3["connect_timeout"] == s3["timeout"]
    assert s3["timeout"].partition(" ")[0] == f"{int(TIMEOUT_S)}s"
    here = Path(inspect.getfile(working.module["app"])).parent
    sources = [(here / f"{one}.py").read_text() for one in ("app", "files", "objects", "report")]
    assert not [found for text in sources for found in re.findall(r".*timeout\w*\W{1,5}\d.*", text)]
    assert sum("SETTINGS[TIMEOUT_S]" in text for text in sources) == 3


# -- 6: what people see while a job waits -----------------------------------------------------------


def test_6_while_a_file_waits_for_its_next_try_its_error_stays_in_sight(working):
    with working.resuming():
        id = working.upload(Fault("500", FAULTS["500"].answer, working.pause))
        until("its first try has failed", lambda: working.row(id)["error_code"], within_s=60.0)
        assert working.row(id)["status"] == "queued"
        file = working.show(id)
        assert file["error_code"] == file["processing"]["last_error"]["code"] == "llm_provider_5xx"
        assert (file["processing"]["attempts"], file["processing"]["max_attempts"]) == (1, 4)
        assert file["processing"]["next_run_at"] is not None
        assert file["error_message"] == "The upstream failed while handling the request."
    done = working.ended(id)
    assert (done["status"], done["error_code"], done["processing"]["last_error"]) == ("succeeded", None, None)  # fmt: skip
