"""What users may read about a failure: named by the stage in so many words, else by the vocabulary, by stage and status."""

import json
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from perdure import App, OutputInvalid, StageError, Vocabulary
from perdure.model.kinds import KINDS, Kind
from perdure.model.limits import MESSAGE_CHARS_MAX, PUBLIC_CODE_CHARS_MAX, PUBLIC_MESSAGE_CHARS_MAX
from perdure.rules.evidence import evidence_of
from perdure.rules.policy import Policy
from perdure.rules.policy_form import policy_from
from perdure.rules.presets import preset
from perdure.surfaces.cli.root import cli
from perdure.testing import Answer
from tests.app.worker.working_off import worked_off
from tests.engine import answering
from tests.engine.answering import Gateway, asking, called, worked
from tests.house.markdown import fences

ROOT = Path(__file__).parents[2]

REPORTS = preset("reports")
ONCE = Policy("once", attempts_max=1)
WORDS = Vocabulary(
    "own",
    kinds={"refused": Kind.INVALID_REQUEST, "read_failed": Kind.STORAGE_TRANSIENT},
    stages={"read": {Kind.UPSTREAM_UNAVAILABLE: "read_failed"}},
    statuses={Kind.INVALID_REQUEST: "llm_provider_{status}"},
)
OWN = Policy("own", vocabulary=WORDS)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with answering.gateway() as running:
        yield running


def failing(error: Exception):
    def fail(item):
        raise error

    return fail


def test_a_code_may_hold_the_status_that_came(gateway):
    gateway.script(Answer(422, {"error": "no"}))
    for found in (
        worked(gateway, OWN, asking(gateway)),
        worked(gateway, REPORTS, asking(gateway)),
        called(gateway, preset("gateway-sync"), asking(gateway), own=OWN),
    ):
        assert (found.code, found.codes, found.reason) == (
            "llm_provider_422",
            ("llm_provider_422",),
            "fatal",
        )
        assert found.message == KINDS[Kind.INVALID_REQUEST].sentence


@pytest.mark.parametrize(
    ("stage", "code"), [("read", "s3_read_failed"), ("write", "s3_write_failed")]
)
def test_the_same_fault_has_another_code_at_another_stage(gateway, stage, code):
    gateway.script(Answer(503, "<Error><Code>SlowDown</Code></Error>"))
    found = worked(gateway, REPORTS, asking(gateway), name=stage)
    assert (found.calls, found.code, set(found.codes)) == (4, code, {code})


def test_a_user_s_vocabulary_may_tell_stages_apart(gateway):
    gateway.script(Answer(503, "busy"))
    assert worked(gateway, OWN, asking(gateway), name="read").code == "read_failed"
    assert worked(gateway, OWN, asking(gateway), name="write").code == "upstream_unavailable"


def test_a_stage_may_name_its_own_code_and_message(gateway):
    gateway.script()
    error = StageError(
        "input_invalid",
        "row 17 of /srv/in.csv is empty",
        public_code="empty_original_transcript",
        public_message="The transcript is empty.",
    )
    for found in (
        worked(gateway, REPORTS, failing(error)),
        called(gateway, preset("gateway-sync"), failing(error)),
    ):
        assert (found.code, found.codes[0]) == ("empty_original_transcript",) * 2
        assert found.message == "The transcript is empty."


def test_a_check_of_output_may_name_its_own_code(gateway):
    gateway.script()
    error = OutputInvalid("$", "not JSON", raw="{", public_code="llm_output_invalid_json")
    found = worked(gateway, ONCE, failing(error))
    assert (found.code, found.message) == (
        "llm_output_invalid_json",
        KINDS[Kind.INVALID_OUTPUT].sentence,
    )


def test_a_code_that_a_stage_has_named_stays_readable_while_the_job_waits(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    error = StageError("network", "reset", public_code="s3_read_failed", public_message="Later.")
    app.pipeline("p", app.stage(failing(error))).enqueue(1)
    worked_off(app)
    (job,) = app._session.opened.reader.jobs()
    (attempt,) = app._session.opened.reader.attempts(job.no)
    assert (job.state, job.error_code, job.error_message) == ("queued", "s3_read_failed", "Later.")
    assert (job.error_kind, attempt.kind, attempt.code) == ("network", "network", "s3_read_failed")
    seen = json.loads(attempt.evidence_json)
    assert (seen["public_code"], seen["public_message"]) == ("s3_read_failed", "Later.")
    app.close()


def test_nothing_of_an_exception_s_text_becomes_public_unless_it_was_named(gateway):
    gateway.script()
    found = worked(gateway, ONCE, failing(StageError("invalid_request", "secret of /srv/x")))
    assert (found.code, found.message) == ("invalid_request", KINDS[Kind.INVALID_REQUEST].sentence)

    class Loud(Exception):
        public_code = "loud"
        public_message = "the key is sk-123"

    found = worked(gateway, ONCE, failing(Loud("no")))
    assert (found.code, found.message) == ("unknown", KINDS[Kind.UNKNOWN].sentence)


def test_a_named_message_is_made_one_safe_line_and_cut():
    said = "first\n\tsecond  in /srv/keys/ann.pem " + "and so on " * 40
    error = StageError("network", "reset", public_message=said)
    message = evidence_of(error).public_message
    assert message.startswith("first second in [path]")
    assert PUBLIC_MESSAGE_CHARS_MAX - 10 < len(message) <= PUBLIC_MESSAGE_CHARS_MAX == 280
    short = "y" * PUBLIC_MESSAGE_CHARS_MAX
    assert evidence_of(StageError("network", "no", public_message=short)).public_message == short


def test_a_named_code_has_64_characters_at_most():
    longest = "x" * PUBLIC_CODE_CHARS_MAX
    assert evidence_of(StageError("network", "no", public_code=longest)).public_code == longest
    assert evidence_of(StageError("network", "no", public_code=longest + "x")).public_code is None


KEY = "sk-ant-api03-" + "A" * 40


@pytest.mark.parametrize(
    "code", ["", "two words", "1st", "a\nb", "x y\n<script>", "ключ", 7, "x" * 65, KEY]
)
def test_what_is_no_code_is_left_out_and_the_failure_stays_what_it_is(code):
    later = StageError("network", "reset")
    later.public_code = code
    for error in (StageError("network", "reset", public_code=code), later):
        seen = evidence_of(error)
        assert (seen.kind, seen.public_code) == (Kind.NETWORK, None)
        assert seen.message.startswith("reset; public_code ")
        assert "is left out, it must be one word of letters, digits" in seen.message
        assert "\n" not in seen.message
        assert KEY not in seen.message


@pytest.mark.parametrize("message", ["", " \n", 7])
def test_what_is_no_message_is_left_out_and_the_failure_stays_what_it_is(message):
    seen = evidence_of(StageError("network", "reset", public_message=message))
    assert (seen.kind, seen.public_message) == (Kind.NETWORK, None)
    assert seen.message.startswith("reset; public_message ")


def test_a_long_message_leaves_room_for_what_is_left_out():
    seen = evidence_of(StageError("network", "m" * 5_000, public_code="bad code"))
    assert len(seen.message) <= MESSAGE_CHARS_MAX
    assert "public_code 'bad code' is left out" in seen.message


def test_a_bad_code_makes_a_failure_that_may_pass_no_fatal_one(gateway):
    gateway.script()
    error = StageError("network", "reset", public_code="bad code")
    found = called(gateway, preset("gateway-sync"), failing(error), own=preset("standard"))
    assert (found.state, found.code) == ("handed_over", "UPSTREAM_UNAVAILABLE")


def test_the_how_to_does_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = fences((ROOT / "docs" / "howto-codes.md").read_text(encoding="utf-8"))
    declared, in_toml, typed, _, raised, aliased = ("\n".join(one.lines) for one in blocks)
    names: dict[str, Any] = {"StageError": StageError}
    exec(declared, names)
    assert policy_from(tomllib.loads(in_toml)) == names["policy"]
    names["app"].close()
    with pytest.raises(StageError) as caught:
        exec(raised, names)
    exec(aliased, names)
    assert names["words"].aliases["owner"] == "tenant"
    seen = evidence_of(caught.value)
    assert (seen.public_code, seen.public_message) == (
        "empty_transcript",
        "The transcript is empty.",
    )
    command, *shown = typed.splitlines()
    answer = CliRunner().invoke(cli, shlex.split(command)[2:])
    assert answer.output.splitlines()[:2] == shown[:2]
