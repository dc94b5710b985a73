"""Reading JSON out of what models write: fences, words, commas, broken and cut-off texts."""

import contextlib
import enum
import json
import sys

import pytest

from perdure.checks import (
    OutputInvalid,
    OutputRefused,
    OutputTruncated,
    Parsed,
    json_of,
    read_json,
)
from perdure.checks.finish_reason import ENDS, End
from perdure.model.errors import ConfigError
from perdure.model.kinds import Kind
from perdure.model.limits import OUTPUT_CHARS_MAX, REPAIR_CHARS_MAX
from perdure.rules.matchers.output import FINISHES

READ = [
    ('{"a": 1}', {"a": 1}, ()),
    (" \n[1, 2]\n", [1, 2], ()),
    (b'{"a": 1}', {"a": 1}, ()),
    (bytearray(b"[]"), [], ()),
    ("42", 42, ()),
    ("-1.5e3", -1500.0, ()),
    ('"yes"', "yes", ()),
    ("null", None, ()),
    ('"\\u00e9\\ud83d\\ude00"', "é😀", ()),
    ('\ufeff{"a": 1}', {"a": 1}, ("bom",)),
    ('\ufeff```json\n{"a": 1}\n```', {"a": 1}, ("bom", "fence")),
    ('```json\n{"a": 1}\n```', {"a": 1}, ("fence",)),
    ('```JSON\n{"a": 1}\n```', {"a": 1}, ("fence",)),
    ('```\n{"a": 1}\n```', {"a": 1}, ("fence",)),
    ('```{"a": 1}```', {"a": 1}, ("fence",)),
    ('```json {"a": 1} ```', {"a": 1}, ("fence",)),
    ('````json\n{"a": 1}\n````', {"a": 1}, ("fence",)),
    ("~~~json\n[1]\n~~~", [1], ("fence",)),
    ('  ```json\n  {"a": 1}\n  ```', {"a": 1}, ("fence",)),
    ('> ```json\n{"a": 1}\n```', {"a": 1}, ("fence",)),
    ('```json\n{"a": 1}', {"a": 1}, ("fence",)),
    ("```json\n42\n```", 42, ("fence",)),
    ('```json\r\n{"a": 1}\r\n```\r\n', {"a": 1}, ("fence",)),
    ('Here you are:\n```json\n{"a": 1}\n```\nHope it helps!', {"a": 1}, ("fence",)),
    ('Sure! ```json\n{"a": 1}\n```\nHope it helps!', {"a": 1}, ("fence",)),
    ('See [1] and {x}:\n```json\n{"a": 1}\n```\nand [2].', {"a": 1}, ("fence",)),
    ('```python\nx = {}\n```\n```json\n{"a": 1}\n```', {"a": 1}, ("fence",)),
    ('```json title="x"\n{"a": 1}\n```', {"a": 1}, ("fence", "words")),
    ('```json\nThe answer is {"a": 1}\n```', {"a": 1}, ("fence", "words")),
    ('{"code": "```json\\n[1]\\n```"}', {"code": "```json\n[1]\n```"}, ()),
    ('Here: {"code": "```json\\n[1]\\n```"}', {"code": "```json\n[1]\n```"}, ("words",)),
    ('Sure! {"a": 1}', {"a": 1}, ("words",)),
    ('{"a": 1} Hope it helps!', {"a": 1}, ("words",)),
    ('It\'s 5" wide: {"a": "b"} and so on', {"a": "b"}, ("words",)),
    ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}, ("commas",)),
    ("[1,\n]", [1], ("commas",)),
    ('{"a": ",]", "b": "\\",}",}', {"a": ",]", "b": '",}'}, ("commas",)),
    ('So: ```\n{"a": 1,}\n``` Done.', {"a": 1}, ("words", "commas")),
    ("[]", [], ()),
    ("{}", {}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "steps"), READ, ids=lambda one: repr(one)[:40])
@pytest.mark.parametrize("reason", [None, "stop"])
def test_a_value_is_found_where_models_put_it(text, value, steps, reason):
    assert read_json(text, finish_reason=reason) == Parsed(value, steps)
    assert json_of(text, finish_reason=reason) == value


INVALID = [
    ("", "$", "it is empty"),
    (" \n ", "$", "it is empty"),
    ("\ufeff", "$", "it is empty"),
    ("```json\n```", "$", "it is empty"),
    ("```", "$", "it is empty"),
    ("I cannot do that.", "$", "it holds no JSON value"),
    ("12 apples", "$", "it holds no JSON value"),
    ('{"a": 1} {"b": 2}', "$", "it holds several JSON values"),
    ('{"a": 1}\n{"a": 2}\n', "$", "it holds several JSON values"),
    ('As in [1]: {"a": 1}', "$", "it holds several JSON values"),
    ('Either {"a": 1} or {"a": 2}.', "$", "it holds several JSON values"),
    ("```json\n[1]\n```\nor\n```json\n[2]\n```", "$", "it holds several JSON values"),
    ("[,]", "$", "it is not JSON"),
    ('{"a": NaN}', "$[...]", "the number is not finite"),
    ("[0, -Infinity]", "$[1]", "the number is not finite"),
    ("NaN", "$", "the number is not finite"),
    ("[1e999]", "$[0]", "the number is not finite"),
    ("[9223372036854775808]", "$[0]", "the number has more than 64 bits"),
    ("[" + "9" * 1_000_000 + "]", "$[0]", "the number has more than 64 bits"),
    ('{"x": {"a": 1, "a": 2}}', "$[...]", "a name stands twice in an object"),
    ('["\\ud800"]', "$[0]", "a text holds half of a surrogate pair"),
    ('{"\\udc00": 1}', "$", "a text holds half of a surrogate pair"),
    ('["a\\u0000"]', "$[0]", "a text holds a NUL character"),
    ("[" * 65 + "1" + "]" * 65, "$" + "[0]" * 65, "it is nested deeper than 64 levels"),
    ("[" * 100_000, "$", "it is nested deeper than 64 levels"),
    ('{"a":' * 100_000, "$", "it is nested deeper than 64 levels"),
    ("[" * 100_000 + "]" * 100_000, "$", "it is nested deeper than 64 levels"),
    ("x" * (OUTPUT_CHARS_MAX + 1), "$", f"it is longer than {OUTPUT_CHARS_MAX} characters"),
    (b"\xff\xfe{}", "$", "it is not UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path", "rule"), INVALID, ids=lambda one: repr(one)[:40])
@pytest.mark.parametrize("reason", [None, "stop"])
def test_what_is_no_single_json_value_says_why(text, path, rule, reason):
    with pytest.raises(OutputInvalid) as caught:
        read_json(text, finish_reason=reason)
    error = caught.value
    assert (error.kind, error.path, error.rule, error.raw) == (
        Kind.INVALID_OUTPUT,
        path,
        rule,
        text,
    )


def test_as_deep_as_a_result_may_be_is_not_too_deep():
    assert json_of("[" * 65 + "]" * 65) == json.loads("[" * 65 + "]" * 65)


BROKEN = [
    ("{'a': 1}", {"a": 1}),
    ("{a: 1, b: true}", {"a": 1, "b": True}),
    ('{"a": True, "b": None}', {"a": True, "b": None}),
    ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
    ('{"a": "two\nlines"}', {"a": "two\nlines"}),
    ('{"a": 1, // one\n "b": 2}', {"a": 1, "b": 2}),
    ('{"a": "he said "hi" to me"}', {"a": 'he said "hi" to me'}),
    ("[1,,]", [1]),
    ('{"a": [1, 2', {"a": [1, 2]}),
    ('{"a": [1, 2], "b": 3', {"a": [1, 2], "b": 3}),
    ("```json\n{'a': 1}\n```", {"a": 1}),
    ("Here you are: {'a': 1} Hope it helps!", {"a": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), BROKEN)
@pytest.mark.parametrize("reason", ["stop", "END_TURN", " Completed "])
def test_a_broken_value_is_mended_when_the_model_had_come_to_its_end(text, value, reason):
    parsed = read_json(text, finish_reason=reason)
    assert (parsed.value, parsed.repaired, parsed.steps[-1]) == (value, True, "repair")


@pytest.mark.parametrize(("text", "value"), BROKEN)
@pytest.mark.parametrize("options", [{}, {"finish_reason": "pause_turn"}, {"repair": False}])
def test_a_broken_value_is_not_mended_on_a_guess(text, value, options):
    with pytest.raises((OutputInvalid, OutputTruncated)):
        read_json(text, **options)


def test_nothing_is_mended_when_that_is_not_wanted():
    with pytest.raises(OutputInvalid, match="it is not JSON"):
        read_json("{'a': [1, 2", finish_reason="stop", repair=False)


def test_what_was_read_as_it_stands_is_not_called_repaired():
    assert not read_json('{"a": 1}', finish_reason="stop").repaired
    assert not read_json('So: {"a": 1,}', finish_reason="stop").repaired


UNMENDED = [
    "{sorry}",
    "I am sorry, {name}, I cannot",
    "{",
    "[",
    '{"a": ...}',
    '{"a": [1, 2, ...]}',
    "[…]",
    "{'a': NaN}",
    "{'a': -Infinity}",
    '{"a": 1, "b": }',
    '{"```json[```',  # json-repair 0.64.2 asserts that it cannot be
    "{'a': 1} or {'a': 2}",
    "function() { return 1; }",
    "{'a': '" + "x" * REPAIR_CHARS_MAX + "'}",
    "{'a': 1}" + "}" * 100_000,
]


@pytest.mark.parametrize("text", UNMENDED, ids=lambda one: one[:40])
def test_what_would_have_to_be_made_up_is_not_mended(text):
    with pytest.raises(OutputInvalid, match="it is not JSON"):
        read_json(text, finish_reason="stop")


def test_dots_inside_a_text_are_no_gap():
    assert json_of("{'a': 'wait ... what', \"b\": \"NaN\"}", finish_reason="stop") == {
        "a": "wait ... what",
        "b": "NaN",
    }


HOSTILE = [
    '["' * 60_000,
    '["' + 'a"' * 60_000,
    '{"a": "' + 'b\n"c": ' * 15_000,
    "[" + '\\"' * 60_000,
    "{'a': " + '("' * 60_000,
    "```json\n" + " " * 2_000_000 + "x",
    "{" + '"' * 1_000_000,
    "{" + '\\"' * 1_000_000,
    "[" + ",\n" * 1_000_000,
    "```" * 600_000,
    "```json\n" * 200_000,
    "- " * 1_000_000,
    "{" + "a" * 2_000_000,
]


@pytest.mark.timeout(100)  # each takes a second at most; unbounded, some took minutes
@pytest.mark.parametrize("text", HOSTILE, ids=lambda one: repr(one)[:20])
def test_no_text_keeps_us_for_long(text):
    with contextlib.suppress(OutputInvalid):
        read_json(text, finish_reason="stop")


CUT = [
    '{"a": 1, "b": [1, 2',
    '{"a": "once upon a ti',
    '{"a": "\\',
    '```json\n{"a": 1,',
    'Sure: {"a": {"b": 1}',
    "[",
    '{"a": tru',
]


@pytest.mark.parametrize("text", CUT)
@pytest.mark.parametrize("reason", [None, "pause_turn", "length"])
def test_a_cut_off_value_is_truncated_and_never_mended(text, reason):
    with pytest.raises(OutputTruncated) as caught:
        read_json(text, finish_reason=reason)
    error = caught.value
    assert (error.kind, error.path, error.raw) == (Kind.TRUNCATED_OUTPUT, "$", text)
    assert error.rule == (
        "finish reason length" if reason == "length" else "its JSON is not closed"
    )


@pytest.mark.parametrize("word", sorted(one for one, end in ENDS.items() if end is End.CUT))
def test_an_output_that_reached_its_limit_is_truncated_even_if_it_can_be_read(word):
    with pytest.raises(OutputTruncated, match=f"finish reason {word}"):
        json_of('{"a": 1}', finish_reason=word.upper())


@pytest.mark.parametrize("word", sorted(one for one, end in ENDS.items() if end is End.REFUSED))
def test_a_refused_output_is_said_to_be_refused(word):
    with pytest.raises(OutputRefused, match=f"finish reason {word}") as caught:
        json_of("I cannot", finish_reason=word)
    assert caught.value.kind is Kind.CONTENT_REFUSED


def test_finish_reasons_mean_the_same_as_in_the_rules():
    judged = {End.CUT: Kind.TRUNCATED_OUTPUT, End.REFUSED: Kind.CONTENT_REFUSED}
    ours = {word: judged[end] for word, end in ENDS.items() if end in judged}
    theirs = {word: kind for word, kind in FINISHES.items() if kind in judged.values()}
    assert ours == {word: kind for word, kind in theirs.items() if word != "missing"}
    assert not FINISHES.keys() & {word for word, end in ENDS.items() if end is End.WHOLE}


class Spoken(enum.Enum):
    STOP = "STOP"
    MAX_TOKENS = "MAX_TOKENS"


class Numbered(enum.IntEnum):
    STOP = 1
    MAX_TOKENS = 2


@pytest.mark.parametrize("reasons", [Spoken, Numbered])
def test_a_finish_reason_may_be_an_enumeration(reasons):
    assert read_json("{'a': 1}", finish_reason=reasons.STOP).repaired
    with pytest.raises(OutputTruncated, match="max_tokens"):
        read_json("{}", finish_reason=reasons.MAX_TOKENS)


def test_a_finish_reason_that_is_no_word_is_refused():
    with pytest.raises(ConfigError, match="finish_reason is of type int"):
        read_json("{}", finish_reason=1)


def test_what_is_no_text_is_refused():
    with pytest.raises(ConfigError, match="a dict is no text"):
        read_json({"a": 1})


def test_without_json_repair_a_whole_output_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "json_repair", None)
    with pytest.raises(ConfigError, match=r'pip install "perdure\[checks\]"'):
        json_of('{"a": 1}', finish_reason="stop")
    assert json_of('{"a": 1}', finish_reason="stop", repair=False) == {"a": 1}
    assert json_of('{"a": 1}') == {"a": 1}
