"""Samples become rows: by which policies, what dies of what, how it is mended, and what is in the files."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
from examples.datasets.provider import FAULTS, PROMPT_CHARS_MAX, Fault, refusal
from pyarrow.parquet import read_metadata, read_table

from perdure import ConfigError, RunAborted, RunStatus, load_settings
from perdure.testing import Answer
from tests.house.tree import ROOT
from tests.stories.kit import until

PASSING = [one for one in FAULTS.values() if one.name != "no answer"]
FINAL = [refusal(400, "bad_request"), refusal(403, "forbidden"), refusal(404, "model_not_found"), refusal(422, "invalid")]  # fmt: skip
WAIT_S = 60.0


def line(number: int, text: str = "The soup was good and the train was late.") -> dict[str, str]:
    return {"id": f"s{number}", "text": f"{text} {number}"}


def test_a_line_becomes_a_row_in_four_stages_each_with_its_own_policy(datasets):
    run = datasets.feed("whole", [line(1)])
    run.wait(wait_s=WAIT_S)
    (job,) = datasets.app.jobs.list(run=run.no)
    attempts = datasets.app.job(job.id).attempts()
    assert [(one.stage, one.status.value, one.policy) for one in attempts] == [
        ("pick", "success", "datasets-once/1"),
        ("label", "success", "datasets-llm-x0.2/1"),
        ("measure", "success", "datasets-x0.2/1"),
        ("keep", "success", "datasets-x0.2/1"),
    ]
    datasets.sinks.write_files(run, "whole")
    (row,) = datasets.rows("whole")
    assert (row["id"], row["topic"], row["words"], row["variety"]) == ("s1", "food", 10, 0.8)
    kept = datasets.folder / "artifacts" / row["artifact"][:2] / f"{row['artifact']}.json"
    assert json.loads(kept.read_text())["sample"] == line(1)


def test_in_service_each_stage_has_the_preset_of_the_document_itself(datasets):
    for preset in ("datasets-once", "datasets-llm", "datasets"):
        assert datasets.modules["app"].policy_at(preset, 1) == preset


def test_what_the_list_of_the_model_names_is_tried_again(datasets):
    for number, fault in enumerate(PASSING):
        datasets.plan("passing", f"s{number}", fault)
    run = datasets.feed("passing", [line(number) for number in range(len(PASSING))])
    assert run.wait(wait_s=WAIT_S).status is RunStatus.COMPLETED
    for number, fault in enumerate(PASSING):
        tries = datasets.tries(run, f"passing/s{number}")
        label = [one for one in tries if one[0] == "label"]
        assert label == [("label", 1, "retrying"), ("label", 2, "success")], fault.name


def test_what_it_does_not_name_is_a_dead_letter_at_once(datasets):
    lie = Fault("no label", Answer(200, datasets_answer('{"topic": "cheese"}')))
    faults = [Fault(str(one.status), one) for one in FINAL] + [lie]
    for number, fault in enumerate(faults):
        datasets.plan("final", f"s{number}", fault)
    run = datasets.feed("final", [line(number) for number in range(len(faults))])
    assert run.wait(wait_s=WAIT_S).status is RunStatus.FAILED
    for number in range(len(faults)):
        assert datasets.tries(run, f"final/s{number}")[-1] == ("label", 1, "failed")
    kinds = run.view().kinds
    assert kinds["invalid_output"] == 1
    assert sum(kinds.values()) == len(faults)
    assert run.view().counts.cost_usd > 0  # the useless answer was paid for


def datasets_answer(text: str) -> dict[str, object]:
    choice = {"finish_reason": "stop", "message": {"content": text}}
    return {"choices": [choice], "usage": {"prompt_tokens": 40, "completion_tokens": 9}}


def test_the_third_failure_is_the_last_and_the_waits_are_spread_by_a_quarter(datasets):
    datasets.plan("thrice", "s1", *[FAULTS["500"]] * 3)
    run = datasets.feed("thrice", [line(1), line(2)])
    assert run.wait(wait_s=WAIT_S).status is RunStatus.PARTIAL_SUCCESS
    (letter,) = datasets.app.dead.list(run=run.no)
    assert (letter.stage, letter.failed_reason.value) == ("label", "exhausted")
    first, second = (one.delay_s for one in datasets.app.job(letter.id).attempts()[1:3])
    assert 0.15 <= first <= 0.25
    assert 0.3 <= second <= 0.5


def test_every_line_is_accounted_for_and_only_good_ones_are_in_the_files(datasets):
    too_long = line(5, "word " * PROMPT_CHARS_MAX)
    lines = [
        line(1), '{"id": "cut', '{"id": "s2", "text": "a \\ud800 b c d e"}', {"id": "s3", "text": 7}, "7",
        {"id": "s4", "text": "Too short."}, too_long, line(1, "The same id again."), {"text": "No id at all, but a text."},
    ]  # fmt: skip
    run = datasets.feed("odd", lines)
    run.wait(wait_s=WAIT_S)
    status = datasets.build.status_of(run.view())
    assert run.fed.repeated == 1
    assert status["total"] + run.fed.repeated == len(lines)
    told = [status[name] for name in ("succeeded", "dlq", "skipped", "pending")]
    assert told == [1, 6, 1, 0]
    dead = datasets.app.dead.list(run=run.no)
    assert [one.key for one in dead] == ["odd:line-9", "odd/s5", "odd:line-5", "odd/s3", "odd:line-3", "odd:line-2"]  # fmt: skip
    assert {one.stage for one in dead} == {"pick", "label"}
    assert json.loads(dead[-1].payload_json) == {"line": 2, "bytes": 12, "unreadable": "JSON is malformed: invalid character (byte 11)", "raw": repr(b'{"id": "cut\n')}  # fmt: skip
    datasets.sinks.write_files(run, "odd")
    parquet = datasets.folder / "datasets" / "odd.parquet"
    assert [row["id"] for row in datasets.rows("odd")] == ["s1"]
    assert read_table(parquet).to_pylist() == datasets.rows("odd")
    assert read_metadata(parquet).metadata[b"run"] == run.id.encode()


def test_a_line_that_is_too_large_or_too_deep_is_a_dead_letter_with_its_size_and_its_beginning(datasets):  # fmt: skip
    whole = '{"' + "\x7f" * 199_000  # each of these is five bytes in the letter
    lines = [
        json.dumps(line(1, "word " * 300_000)), "x" * 3_000_000, '{"id": "s3", "text": ' + "[" * 3_000 + "]" * 3_000 + "}",
        '{"id": "s4", "text": "a \\u0000 b c d"}', whole, line(6),
    ]  # fmt: skip
    run = datasets.feed("heavy", lines)
    run.wait(wait_s=WAIT_S)
    dead = {one.key: one for one in datasets.app.dead.list(run=run.no)}
    assert set(dead) == {f"heavy:line-{number}" for number in range(1, 6)}
    kept = [json.loads(dead[f"heavy:line-{number}"].payload_json) for number in range(1, 6)]
    assert [one["bytes"] for one in kept] == [len(one) + 1 for one in lines[:5]]
    assert [one["unreadable"] for one in kept] == [
        "as JSON it has 1500023 bytes; a sample has at most 1048576",
        "the line has more than 2097152 bytes",
        "it is nested too deep",
        "a text holds a NUL character",
        "JSON is malformed: invalid character (byte 199002)",
    ]
    assert [one["raw"] for one in kept] == [repr(f"{one}\n".encode()[:200_000]) for one in lines[:5]]  # fmt: skip
    assert "that is no sample: it is nested too deep" in dead["heavy:line-3"].error_message
    assert datasets.build.status_of(run.view())["succeeded"] == 1  # what comes after them is in


def test_no_id_stands_in_the_way_of_a_line_that_has_none(datasets):
    lines = [{**line(1), "id": "line-3"}, {**line(2), "id": ":line-3"}, "broken"]
    run = datasets.feed("names", lines)
    run.wait(wait_s=WAIT_S)
    assert run.fed.repeated == 0
    assert [one.key for one in datasets.app.dead.list(run=run.no)] == ["names:line-3"]


def test_a_file_that_cannot_be_finished_leaves_the_old_one_in_place(datasets, monkeypatch):
    run = datasets.feed("files", [line(number) for number in range(3)])
    run.wait(wait_s=WAIT_S)
    datasets.sinks.write_files(run, "files")
    before = datasets.rows("files")
    broken = {**before[0], "words": "many"}
    results = [*run.results(), type("Result", (), {"value": broken})()]
    monkeypatch.setattr(run, "results", lambda **_: iter(results))
    with pytest.raises((TypeError, ValueError)):
        datasets.sinks.write_files(run, "files")
    assert datasets.rows("files") == before
    assert len(read_table(datasets.folder / "datasets" / "files.parquet")) == 3


def test_what_a_folder_has_cost_goes_on_at_its_stage_in_a_child_run_when_that_is_mended(datasets):
    artifacts, moved = datasets.folder / "artifacts", datasets.folder / "artifacts.away"
    artifacts.mkdir(exist_ok=True)
    artifacts.rename(moved)
    artifacts.write_text("a file is in the way of the folder")
    run = datasets.feed("mended", [line(number) for number in range(4)])
    assert run.wait(wait_s=WAIT_S).status is RunStatus.FAILED
    artifacts.unlink()
    moved.rename(artifacts)
    assert {(one.stage, one.failed_reason.value) for one in datasets.app.dead.list(run=run.no)} == {("keep", "exhausted")}  # fmt: skip
    assert datasets.sinks.write_files(run, "mended") == dict.fromkeys([datasets.folder / "datasets" / f"mended.{one}" for one in ("jsonl", "parquet")], 0)  # fmt: skip
    redrive = datasets.app.dead.redrive(run=run.no, stage="keep", reason="the folder is back")
    redrive.wait(wait_s=WAIT_S)
    child = redrive.run.wait(wait_s=WAIT_S)
    assert (child.status, child.parent, child.counts.succeeded) == (RunStatus.COMPLETED, run.no, 4)
    until("the parent is judged anew", lambda: run.status is RunStatus.COMPLETED, within_s=WAIT_S)
    calls = Counter(about for about, _ in datasets.provider.calls if about.startswith("mended/"))
    assert calls == {f"mended/s{number}": 1 for number in range(4)}  # the model was not asked again
    datasets.sinks.write_files(run, "mended")
    assert [row["id"] for row in datasets.rows("mended")] == ["s0", "s1", "s2", "s3"]


def test_corrected_samples_are_driven_again_in_bulk_from_a_file(datasets):
    long = [line(number, "word " * PROMPT_CHARS_MAX) for number in range(3)]
    run = datasets.feed("long", [*long, line(9)])
    run.wait(wait_s=WAIT_S)
    corrected = datasets.folder / "corrected.jsonl"
    told = [{"key": f"long/{one['id']}", "payload": line(7)} for one in long]
    corrected.write_text("".join(json.dumps(one) + "\n" for one in told))
    chosen = {"pipeline": "samples", "run": run.no, "payloads": corrected}
    assert datasets.app.jobs.preview_retry(**chosen).eligible == 3
    datasets.app.jobs.retry(**chosen).wait(wait_s=WAIT_S)
    until("they are done", lambda: run.view().counts.succeeded == 4, within_s=WAIT_S)
    assert run.wait(wait_s=WAIT_S).status is RunStatus.COMPLETED


def test_data_sets_of_one_source_are_driven_again_each_for_itself(datasets):
    lines = [line(number, "word " * PROMPT_CHARS_MAX) for number in range(2)]
    first = datasets.feed("first", lines)
    first.wait(wait_s=WAIT_S)
    second = datasets.feed("second", [*lines, line(2)], seal=False)
    second.pause()
    datasets.feed("second", [line(3)], seal=False)
    preview = datasets.app.dead.preview(run=first.no)
    assert (preview.eligible, preview.refused) == (2, ())
    second.cancel()


def test_a_key_that_was_withdrawn_aborts_the_run_early_and_says_rate_budget_and_counts(datasets):
    datasets.provider.key = "key-2"
    try:
        run = datasets.feed("keyless", [line(number) for number in range(400)])
        with pytest.raises(RunAborted) as aborted:
            run.wait(wait_s=WAIT_S)
    finally:
        datasets.provider.key = "key-1"
    counts = run.view().counts
    said = r"the rate of failures is 100 %, the budget is 10 % \((\d+) processed, (\d+) failed\)"
    processed, failed = re.search(said, str(aborted.value)).groups()
    assert 100 <= int(processed) == int(failed) <= counts.processed
    assert counts.open > 200
    assert datasets.sinks.write_files(run, "keyless").popitem()[1] == 0
    run.cancel()


def test_a_budget_and_a_check_interval_are_the_run_s_own(datasets):
    long = [line(number, "word " * PROMPT_CHARS_MAX) for number in range(2)]
    lines = [*long, *(line(n) for n in range(2, 250))]  # many are left when the check comes
    run = datasets.feed("strict", lines, failure_budget=0.01, check_every=110)
    with pytest.raises(RunAborted, match="the budget is 1 %"):
        run.wait(wait_s=WAIT_S)
    run.cancel()


ENVIRONMENT = {"DATASETS_STORE": "sqlite:///x.db", "DATASETS_FOLDER": "x", "DATASETS_LLM_URL": "http://x", "DATASETS_LLM_KEY": "k", "DATASETS_LLM_MODEL": "m"}  # fmt: skip


def test_a_wrong_environment_is_told_by_name_value_and_remedy(datasets, monkeypatch):
    for name, text in ENVIRONMENT.items():
        monkeypatch.setenv(name, text)
    names = datasets.settings.NAMES
    monkeypatch.delenv("DATASETS_USD_PER_MTOK_IN", raising=False)
    assert load_settings(names)[datasets.settings.USD_IN] == 0.15
    monkeypatch.setenv("DATASETS_SCALE", "fast")
    with pytest.raises(ConfigError, match="DATASETS_SCALE is 'fast'; it must be a number"):
        load_settings(names)
    monkeypatch.setenv("DATASETS_SCALE", "1")
    monkeypatch.setenv("DATASETS_LLM_KEY", "")
    with pytest.raises(ConfigError, match="DATASETS_LLM_KEY is not set"):
        load_settings(names)


def test_the_command_says_what_is_wrong_in_a_line(tmp_path):
    def build(*words: str) -> tuple[int, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        done = subprocess.run(
            [sys.executable, "-m", "examples.datasets.build", *words],
            cwd=tmp_path, env={**kept, **ENVIRONMENT, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stderr.strip().splitlines()[-1]

    code, said = build("films", "nothing.jsonl")
    assert (code, "nothing.jsonl" in said, "Traceback" in said) == (2, True, False)
    code, said = build("a/b", "nothing.jsonl")
    assert (code, "'a/b' must have 1 to 60 of" in said) == (2, True)


def test_while_the_provider_is_down_its_queue_is_held_and_no_sample_dies(datasets):
    """It is down before the first call: a gate that has seen too few calls fail has nothing to go by."""
    datasets.provider.down = True
    try:
        run = datasets.feed("outage", [line(number) for number in range(60)])
        until(
            "the gate is held",
            lambda: [
                one for one in datasets.app._session.opened.reader.gates() if one.state == "held"
            ],
            within_s=WAIT_S,
        )
    finally:
        datasets.provider.down = False
    ended = run.wait(wait_s=WAIT_S)
    assert (ended.status, ended.counts.succeeded) == (RunStatus.COMPLETED, 60)
    assert datasets.provider.struck["outage"] < 3 * 60  # calls of three attempts each
