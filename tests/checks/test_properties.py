"""What is true of any output: what was put in comes out, nothing of it is told, nothing else is raised."""

import json

import pytest
from hypothesis import example, given, strategies as st

from perdure.checks import OutputError, Parsed, fits, read_json

WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="[{`~\ufeff", exclude_categories=["Cc"]),
    max_size=40,
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
CONTAINERS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
).filter(lambda value: isinstance(value, list | dict))
REASONS = st.sampled_from([None, "stop", "pause_turn"])
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def dumped(value: object, indent: int | None, *, ascii_only: bool) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only)


@given(CONTAINERS | SCALARS, st.sampled_from([None, 2]), st.booleans(), REASONS)
def test_any_json_value_comes_back(value, indent, ascii_only, reason):
    text = dumped(value, indent, ascii_only=ascii_only)
    assert read_json(text, finish_reason=reason) == Parsed(value)
    assert read_json(text.encode(), finish_reason=reason) == Parsed(value)


@given(
    CONTAINERS,
    st.sampled_from([None, 2]),
    WORDS,
    WORDS,
    REASONS,
    st.sampled_from(
        [
            "```json\n{}\n```",
            "```\n{}\n```",
            "~~~\n{}\n~~~",
            "````JSON\r\n{}\r\n````",
            "```json {}```",
        ]
    ),
)
def test_any_value_in_a_fence_between_words_comes_back(value, indent, before, after, reason, fence):
    text = dumped(value, indent, ascii_only=False)
    parsed = read_json(f"{before}\n{fence.replace('{}', text)}\n{after}", finish_reason=reason)
    assert (parsed.value, parsed.repaired) == (value, False)
    assert "fence" in parsed.steps


@given(CONTAINERS, WORDS, WORDS, REASONS)
def test_any_value_between_words_comes_back(value, before, after, reason):
    text = dumped(value, None, ascii_only=False)
    parsed = read_json(f"{before} {text} {after}", finish_reason=reason)
    assert (parsed.value, parsed.repaired) == (value, False)


@given(CONTAINERS.filter(bool), REASONS)
def test_a_comma_behind_the_last_member_changes_nothing(value, reason):
    text = dumped(value, None, ascii_only=False)
    parsed = read_json(f"{text[:-1]},{text[-1]}", finish_reason=reason)
    assert (parsed.value, parsed.steps) == (value, ("commas",))


@given(CONTAINERS.filter(bool), st.data())
def test_a_value_that_is_cut_anywhere_never_comes_back_as_a_smaller_one(value, data):
    text = dumped(value, None, ascii_only=True)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    with pytest.raises(OutputError):
        read_json(cut)


PIECES = st.lists(
    st.sampled_from([
        "{", "}", "[", "]", '"', "'", ",", ":", "\\", "```", "```json", "\n", " ", "1", "true", "NaN", "a",
        "...", "//", "/*", "é", "\ud800", "\0", "\ufeff", "\\u", "-", "e9", "~~~", "(", "”", "None", "#",
    ]),
    max_size=40,
).map("".join)  # fmt: skip


@given(
    PIECES | st.text(st.characters()) | st.binary(), REASONS, st.sampled_from([None, SCHEMA, int])
)
@example('{"a": 1', "stop", None)
def test_no_text_raises_anything_but_our_own_errors(text, reason, against):
    try:
        value = read_json(text, against, finish_reason=reason).value
    except OutputError as caught:
        value = caught
    if isinstance(value, OutputError):
        assert (value.raw, value.__context__) == (text, None)
    else:
        json.dumps(value, allow_nan=False).encode()


SECRET = "zq7Kx9w"
SECRETS = st.sampled_from(
    [SECRET, {SECRET: 1}, {"n": SECRET}, {"n": {SECRET: {}}}, [SECRET], {"n": 1, SECRET: SECRET}]
)


@given(SECRETS, PIECES, PIECES, REASONS, st.sampled_from([SCHEMA, int, dict[str, int], list[int]]))
def test_a_message_never_shows_what_the_model_wrote(secret, before, after, reason, against):
    text = f"{before}{json.dumps(secret)}{after}"
    told = ""
    try:
        fits(read_json(text, finish_reason=reason).value, against)
    except OutputError as error:
        told = str(error) + error.path + error.rule + repr(error)
    assert SECRET not in told
