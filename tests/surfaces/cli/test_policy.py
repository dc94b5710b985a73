"""perdure policy: list, show, check and explain, as a person and as a program use them."""

import json
import sys

import pytest
from click.testing import CliRunner

from perdure.model.errors import ConfigError
from perdure.model.kinds import Kind
from perdure.rules.policy import Policy
from perdure.rules.presets import PRESETS
from perdure.surfaces.cli.root import cli
from tests.house.tree import ROOT

KEYS = [
    "policy", "version", "profile", "kind", "class", "code", "attempt", "attempts_max", "action",
    "failed_reason", "delay_s", "counted", "hold", "hint_s", "rule", "why",
    "until_person",
]  # fmt: skip


def run(*words):
    return CliRunner().invoke(cli, ["policy", *words])


def explained(*words):
    done = run("explain", *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_the_list_names_every_preset():
    assert all(name in run("list").output for name in PRESETS)
    names = [one["name"] for one in json.loads(run("list", "--json").output)]
    assert names == list(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_shown_can_be_saved_checked_and_used(name, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(run("show", name).output)
    assert "is valid\n" in run("check", str(file)).output
    by_name = explained(name, "--error", "http:503")
    assert explained(str(file), "--error", "http:503") == by_name


BASED = """
name = "mine"
based_on = "standard"
deadline_s = 3600

[rules]
transient = { action = "retry", attempts_max = 2 }
"""


def test_a_file_that_is_based_on_a_preset_is_shown_whole_and_can_be_saved_again(tmp_path):
    short, whole = tmp_path / "short.toml", tmp_path / "whole.toml"
    short.write_text(BASED)
    shown = run("show", str(short)).output
    whole.write_text(shown)
    assert "based_on" not in shown
    assert run("show", str(whole)).output == shown
    for spec in ("kind:ambiguous", "http:429", "kind:invalid_output"):
        assert explained(str(short), "--error", spec) == explained(str(whole), "--error", spec)
    assert explained(str(short), "--error", "kind:ambiguous")["attempts_max"] == 2


def test_the_kinds_that_fall_to_otherwise_are_listed(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n[rules]\nnetwork = "retry"\nlimits = "wait"\n')
    done = run("check", str(file))
    assert done.exit_code == 0
    line = done.output.splitlines()[1]
    assert line.startswith("  no rule for these kinds; otherwise = fail: billing, overloaded, ")
    kinds = line.rpartition(": ")[2].split(", ")
    answer = json.loads(run("check", str(file), "--json").output)
    assert answer == {"name": "mine", "version": 1, "otherwise": {"action": "fail", "kinds": kinds}}
    assert set(Kind) - set(kinds) == {"network", "rate_limited", "quota_window", "worker_lost"}
    assert all(
        explained(str(file), "--error", f"kind:{one}")["rule"] == "otherwise" for one in kinds
    )


def test_a_policy_that_answers_every_kind_leaves_nothing_to_otherwise(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nretriable = "all"\n')
    assert run("check", str(file)).output.endswith("is valid\n")
    assert json.loads(run("check", str(file), "--json").output)["otherwise"]["kinds"] == []


LISTS = [
    (
        '[503, "network"]',
        ", unless the status or the exception is one of 503: ",
        [503],
        ["network"],
    ),
    ('["network", "timeout"]', ": ", [], ["network", "timeout"]),
    ('"none"', ": ", [], []),
]


@pytest.mark.parametrize(("written", "but", "unless", "named"), LISTS)
def test_the_kinds_that_a_list_forgets_are_listed(tmp_path, written, but, unless, named):
    file = tmp_path / "mine.toml"
    file.write_text(f'name = "mine"\nretriable = {written}\n[rules]\nauth = "fail"\n')
    line = run("check", str(file)).output.splitlines()[1]
    head = f"  no rule and not in retriable, so these kinds fail{but}"
    assert line.startswith(head)
    kinds = line.removeprefix(head).split(", ")
    assert set(Kind) - set(kinds) == {"auth", "worker_lost", *named}
    answer = json.loads(run("check", str(file), "--json").output)
    assert answer["unlisted"] == {"kinds": kinds, "unless": unless}
    assert answer["otherwise"]["kinds"] == []
    for one in kinds:
        asked = explained(str(file), "--error", f"kind:{one}")
        assert (asked["rule"], asked["action"]) == ("retriable", "fail")


def test_an_unknown_base_names_the_choices(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nbased_on = "standart"\n')
    told = str(run("check", str(file)).exception)
    assert told.startswith(
        f"policy file {str(file)!r}: based_on is 'standart'; did you mean 'standard'? One of: "
    )
    assert all(name in told for name in PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_the_answer_has_exactly_the_stable_keys(name):
    assert list(explained(name, "--error", "kind:timeout")) == KEYS


CASES = [
    ("reports", "http:429", ("retry", 24.0, 36.0)),
    ("reports", "http:408", ("retry", 24.0, 36.0)),
    ("reports", "http:404", ("fail", None, None)),
    ("converter", "http:429", ("fail", None, None)),
    ("converter", "http:502", ("retry", 5.0, 10.0)),
    ("converter", "code:GW_TIMEOUT", ("retry", 5.0, 10.0)),
    ("datasets", "http:400", ("retry", 0.75, 1.25)),
    ("datasets-llm", "http:503", ("retry", 0.75, 1.25)),
    ("datasets-llm", "http:400", ("fail", None, None)),
    ("datasets-once", "http:503", ("fail", None, None)),
    ("verifier", "exception:TimeoutError", ("retry", 60.0, 60.0)),
    ("gateway-worker", "code:UPSTREAM_ERROR", ("retry", 0.8, 1.2)),
    ("gateway-sync", "code:TIMEOUT", ("retry", 0.3, 0.8)),
    ("gateway-sync", "code:RATE_LIMITED", ("hand_over", 0.3, 0.8)),
    ("standard", "sqlstate:40001", ("retry", 1.5, 2.5)),
    ("standard", "sqlstate:23505", ("fail", None, None)),
    ("standard", "s3:SlowDown", ("retry", 1.5, 2.5)),
    ("standard", "s3:NoSuchKey", ("fail", None, None)),
    ("standard", "lost", ("retry", 0.0, 0.0)),
]


@pytest.mark.parametrize(("policy", "spec", "expected"), CASES)
def test_every_sort_of_spec_is_understood(policy, spec, expected):
    answer = explained(policy, "--error", spec)
    delay = answer["delay_s"] or {"min": None, "max": None}
    assert (answer["action"], delay["min"], delay["max"]) == expected


def test_headers_and_bodies_are_heard():
    by_header = explained("verifier", "--error", "http:429", "--header", "Retry-After: 53")
    assert (by_header["delay_s"], by_header["counted"]) == ({"min": 53.0, "max": 53.0}, False)
    body = '{"error": {"retryAfterMs": 4200}}'
    by_body = explained("gateway-worker", "--error", "code:RATE_LIMITED", "--body", body)
    assert by_body["hint_s"] == 4.2
    broke = '{"error": {"code": "insufficient_quota"}}'
    assert explained("standard", "--error", "http:429", "--body", broke)["kind"] == "billing"


def test_a_code_is_answered_by_the_same_code():
    for code in ("NOT_READY", "EXPIRED", "FORBIDDEN", "GW_4XX"):
        answer = explained("converter", "--error", f"code:{code}")
        assert (answer["code"], answer["action"]) == (code, "fail")


def test_a_code_made_of_a_status_is_judged_as_that_status():
    for status in (401, 402, 404, 422, 429, 503):
        by_code = explained("reports", "--error", f"code:llm_provider_{status}")
        by_status = explained("reports", "--error", f"http:{status}")
        assert by_code.pop("code") == f"llm_provider_{status}"
        by_status.pop("code")
        assert by_code == by_status


def test_the_public_code_is_the_one_that_users_read_at_a_stage():
    def code(*words):
        return explained("reports", "--error", "http:404", *words)["code"]

    assert code() == code("--stage", "ask") == "llm_provider_404"
    assert code("--stage", "read") == "file_context_not_found"


def test_the_counters_are_those_after_the_event():
    assert explained("reports", "--error", "http:503", "--attempt", "4")["action"] == "fail"
    spent = explained(
        "verifier", "--error", "http:429", "--header", "Retry-After: 5", "--waits", "21"
    )
    assert spent["failed_reason"] == "exhausted"
    assert explained("standard", "--error", "lost", "--crashes", "3")["failed_reason"] == "crashed"


def test_the_readable_answer_has_the_sentence_and_the_whole_schedule():
    text = run("explain", "reports", "--error", "http:503").output
    assert text.startswith("retry in 30 s: upstream_unavailable")
    assert "attempt 3 of 4: retry in 384 to 576 s" in text
    assert "attempt 4 of 4: fail (exhausted)" in text
    assert "latest calls fail" not in text


def test_the_readable_answer_says_what_a_weak_upstream_costs_where_that_is_another_thing():
    words = "while 25% or more of the upstream's latest calls fail, it is a wait of 1.5 to 2.5 s, not counted"
    assert words in run("explain", "standard", "--error", "http:503").output
    for spec in ("http:429", "http:400", "kind:invalid_output", "kind:internal", "lost"):
        assert "latest calls fail" not in run("explain", "standard", "--error", spec).output


@pytest.mark.parametrize("spec", ["http:401", "http:402"])
def test_a_failure_that_holds_a_credential_is_told_to_wait_for_a_person_and_no_time_is_promised(
    spec,
):
    first, _, gate, typed, *rest = run("explain", "standard", "--error", spec).output.splitlines()
    assert first.startswith("wait until a person releases the gate: ")
    assert "held until a person releases it" in gate
    assert "perdure gates release NAME --reason …" in typed
    assert rest[1].startswith("  in a stage without an upstream there is no gate; there, if every")
    assert rest[2] == "    wait 1 of 20: retry in 45 to 75 s, not counted"
    answer = explained("standard", "--error", spec)
    assert (answer["why"], answer["until_person"]) == (first, True)


def test_a_hint_that_is_too_long_for_the_policy_holds_the_gate_for_a_person():
    text = run(
        "explain", "standard", "--error", "http:429", "--header", "Retry-After: 500000"
    ).output
    assert text.startswith("fail: rate_limited")
    assert "the gate of its upstream is held until a person releases it" in text
    assert "without an upstream" not in text
    assert not explained("standard", "--error", "http:429")["until_person"]


def test_the_readable_answer_says_how_waits_grow_and_where_they_end():
    lines = run("explain", "standard", "--error", "http:429").output.splitlines()
    assert lines[4] == "    wait 1 of 20: retry in 1.5 to 2.5 s, not counted"
    assert lines[5] == "    wait 2 of 20: retry in 3 to 5 s, not counted"
    assert lines[-3:] == [
        "    waits 9 to 20 of 20: retry in 225 to 375 s, not counted",
        "    then: fail (exhausted): waited 20 times and 4110 s in all, the policy allows 20 times and 7 days",
        "    behind a gate that admits most other calls, each wait is as long as the first",
    ]


def test_waits_that_end_by_their_sum_or_by_the_deadline_say_so(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nbased_on = "standard"\nwait_s_max = 10\n')
    *_, last, _ = run("explain", str(file), "--error", "http:429").output.splitlines()
    assert last.endswith("waited 2 times and 6 s in all, the policy allows 20 times and 10 s")
    file.write_text('name = "mine"\nbased_on = "standard"\ndeadline_s = 10\n')
    *_, last, _ = run("explain", str(file), "--error", "http:429").output.splitlines()
    assert last == "    then: fail (expired)"


def test_a_policy_that_is_shown_says_its_weak_share_where_it_has_one():
    assert "weak_share = 0.25" in run("show", "standard").output
    assert "weak_share" not in run("show", "reports").output


BAD = [
    (("explain", "standart", "--error", "lost"), "'standard'"),
    (("explain", "standard", "--error", "kind:rate_limitd"), "'rate_limited'"),
    (("explain", "standard", "--error", "htp:429"), "'http'"),
    (("explain", "standard", "--error", "503"), "did you mean http:503?"),
    (("explain", "standard", "--error", "status:503"), "did you mean http:503?"),
    (("explain", "standard", "--error", "code:503"), "did you mean http:503?"),
    (("explain", "standard", "--error", "timeout"), "did you mean kind:timeout?"),
    (("explain", "standard", "--error", "ReadTimeout"), "did you mean exception:ReadTimeout?"),
    (("explain", "converter", "--error", "GW_5XX"), "did you mean code:GW_5XX?"),
    (("explain", "standard", "--error", "http:99"), "100 to 599"),
    (("explain", "standard", "--error", "http:"), "http:STATUS"),
    (("explain", "standard", "--error", "lost:1"), "lost"),
    (("explain", "converter", "--error", "code:GW_5X"), "'GW_5XX'"),
    (("explain", "standard", "--error", "exception:ReadTimeot"), "'ReadTimeout'"),
    (("explain", "standard", "--error", "s3:SlowDwn"), "'SlowDown'"),
    (("explain", "standard", "--error", "sqlstate:4"), "five letters"),
    (("explain", "standard", "--error", "lost", "--attempt", "0"), "--attempt is 0"),
    (("explain", "standard", "--error", "lost", "--header", "nonsense"), "name: value"),
    (("check", "no-such.toml"), "no-such.toml"),
    (("show", "standrd"), "'standard'"),
]


@pytest.mark.parametrize(("words", "named"), BAD)
def test_a_wrong_word_is_answered_by_one_line_that_names_the_nearest(words, named, capfd):
    done = run(*words)
    assert done.exception is not None
    assert done.exception.exit_code == 2
    assert named in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_kind_that_is_misspelt_in_a_file_is_named_in_words(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n[rules]\nnetwrk = "retry"\n')
    said = str(run("check", str(file)).exception)
    assert "did you mean 'network'?" in said
    assert "<Kind" not in said


def test_a_file_that_is_wrong_is_named_by_field(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nattempts_max = 0\n')
    done = run("check", str(file))
    assert "attempts_max is 0; it must be a whole number between 1" in str(done.exception)
    file.write_text("name = ")
    assert str(file) in str(run("check", str(file)).exception)


def test_all_that_is_wrong_in_a_file_is_told_at_once_a_mistake_a_line(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\nbased_on = "standrad"\nattempts_max = 0\ncrash_max = 2\n'
        '[rules]\ntimeot = "retry"\nnetwork = "rety"\nlimits = "wait"\n'
    )
    with pytest.raises(ConfigError) as loaded:
        Policy.load(file)
    first, *mistakes = str(run("check", str(file)).exception).splitlines()
    assert str(loaded.value).splitlines() == [first, *mistakes]
    assert first == f"policy file {str(file)!r}:"
    told = (
        "'standrad'; did you mean",
        "'crash_max'; did you mean",
        "'timeot'",
        "'rety'",
        "_max is 0",
    )
    assert len(mistakes) == len(told)
    for word, line in zip(told, mistakes, strict=True):
        assert line.startswith("  - ")
        assert word in line


MODULE = """
import perdure

app = perdure.App("sqlite:///work.db")
patient = perdure.Policy.based_on("standard", name="patient", attempts_max=9)


@app.stage(policy="mine.toml")
def ask(item):
    return item


@app.stage(policy=patient)
def save(item, context):
    return item


p = app.pipeline("p", ask, save)
other = app.stage(name="save", policy="datasets")(lambda item: item)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the working directory, with a policy in a file beside it."""
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "mine.toml").write_text(BASED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


def test_what_a_module_or_a_stage_has_is_explained_as_it_runs(module):
    assert explained(f"{module}:patient", "--error", "http:503")["attempts_max"] == 9
    of_stage = explained(f"{module}:app:ask", "--error", "http:503")
    assert of_stage == explained("mine.toml", "--error", "http:503")
    assert (of_stage["policy"], of_stage["attempts_max"]) == ("mine", 2)
    assert run("show", f"{module}:app:ask").output == run("show", "mine.toml").output
    assert "policy patient, version 1, is valid" in run("check", f"{module}:patient").output


GATED = """
import perdure

app = perdure.App("sqlite:///work.db")
app.upstream("model", credential="my key")
app.stage(name="ask", upstream="model")(lambda item: item)
app.stage(name="other", upstream="plain")(lambda item: item)
app.stage(name="free")(lambda item: item)
"""


@pytest.mark.parametrize(("stage", "gate"), [("ask", "'my key'"), ("other", "plain")])
def test_of_a_stage_the_gate_that_a_wrong_key_holds_is_named(tmp_path, monkeypatch, stage, gate):
    name = gated(tmp_path, monkeypatch)
    text = run("explain", f"{name}:app:{stage}", "--error", "http:401").output
    assert f"  when it is mended: perdure gates release {gate} --reason …\n" in text
    times = f"    each time until a person releases {gate.strip(chr(39))}, not counted, 20 times at most"
    assert text.splitlines()[-1] == times
    assert "without an upstream" not in text


def test_of_a_stage_without_an_upstream_no_gate_is_spoken_of(tmp_path, monkeypatch):
    name = gated(tmp_path, monkeypatch)
    text = run("explain", f"{name}:app:free", "--error", "http:401").output
    assert text.startswith("retry in 60 s: auth")
    assert "    waits 7 to 20 of 20: retry in 2700 to 4500 s, not counted\n" in text
    said = (ROOT / "docs" / "howto-runs.md").read_text(encoding="utf-8")
    assert f"a minute up to {4500 // 60} minutes at a time" in said
    assert "gate" not in text
    answer = explained(f"{name}:app:free", "--error", "http:401")
    assert (answer["hold"], answer["until_person"]) == (None, False)


def gated(folder, patch) -> str:
    """The name of a module with stages behind gates, in a folder that is the working one now."""
    name = f"gated_{folder.name}".replace("-", "_")
    (folder / f"{name}.py").write_text(GATED)
    patch.chdir(folder)
    patch.syspath_prepend(str(folder))
    return name


def test_the_public_code_is_that_of_the_stage_that_is_named(tmp_path, monkeypatch):
    name = f"codes_{tmp_path.name}".replace("-", "_")
    text = 'import perdure\napp = perdure.App("sqlite:///w.db")\napp.stage(policy="reports", name="fetch")(lambda item: item)\n'
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    by_stage = explained("reports", "--error", "kind:storage_transient", "--stage", "fetch")
    assert explained(f"{name}:app:fetch", "--error", "kind:storage_transient") == by_stage


WRONG_NAMES = [
    ("{}:app:aks", "has no stage 'aks'; write {}:app:STAGE, one of: ask, save"),
    ("{}:app", "has no stage ''; write {}:app:STAGE, one of: ask, save"),
    ("{}:app:save", "2 stages 'save', with different policies"),
    ("{}:patiant", "names no policy; write module:policy or module:app:stage; {} has the policies: patient"),
    ("nowhere:patient", "no module 'nowhere' here"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "words"), WRONG_NAMES)
def test_what_leads_to_no_policy_says_what_there_is(module, target, words):
    done = run("explain", target.format(module), "--error", "lost")
    assert words.format(module) in str(done.exception)
    assert done.exception.exit_code == 2
