"""Payloads: what comes out is what went in, or it is refused with its place named."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import uuid

import msgspec
import pytest
from hypothesis import given, strategies as st

from perdure.engine.payloads import admit, decode
from perdure.model.errors import PayloadRefused
from perdure.model.limits import DEPTH_MAX, PAYLOAD_BYTES_MAX


def through(value, bytes_max=PAYLOAD_BYTES_MAX):
    return admit(value, what="the item", bytes_max=bytes_max)


@dataclasses.dataclass
class Page:
    number: int
    text: str = ""


class Report(msgspec.Struct):
    name: str
    pages: list[Page] = []


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


def nested(depth: int):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


LET_IN = [
    (None, "null"),
    (True, "true"),
    (0, "0"),
    (-0.0, "-0.0"),
    (1.0, "1.0"),
    (2**63 - 1, "9223372036854775807"),
    (-(2**63), "-9223372036854775808"),
    (1e308, "1e308"),
    (5e-324, "5e-324"),
    ("", '""'),
    ("🎉 é \u2028 \ufeff", '"🎉 é \u2028 \ufeff"'),
    ("\x01\t\n\x7f", '"\\u0001\\t\\n\x7f"'),
    ("\U0010ffff", '"\U0010ffff"'),
    ([], "[]"),
    ((1, 2), "[1,2]"),
    ({}, "{}"),
    ({"": 0}, '{"":0}'),
    ({"b": 1, "a": [None]}, '{"b":1,"a":[null]}'),
    (Page(3, "x"), '{"number":3,"text":"x"}'),
    (Report("r", [Page(1)]), '{"name":"r","pages":[{"number":1,"text":""}]}'),
    ([Page(1), Report("r")], '[{"number":1,"text":""},{"name":"r","pages":[]}]'),
    (Colour.RED, '"red"'),
    (Size.LARGE, "3"),
    (collections.OrderedDict(a=1), '{"a":1}'),
    (nested(DEPTH_MAX), "[" * DEPTH_MAX + "0" + "]" * DEPTH_MAX),
]


@pytest.mark.parametrize(("value", "text"), LET_IN, ids=[text[:40] for _, text in LET_IN])
def test_what_json_can_hold_comes_out_as_its_text(value, text):
    assert through(value) == text


class OwnText(str):
    __slots__ = ()


class OwnNumber(float):
    pass


@dataclasses.dataclass
class Odd:
    field: object


loop: list = []
loop.append(loop)

KEPT_OUT = {
    "NUL": ("a\x00b", "the item holds a NUL character; remove it"),
    "half a pair": ("\ud800", "the item holds half of a surrogate pair; replace it"),
    "other half": ({"a": ["\udfff"]}, "the item.a[0] holds half of a surrogate pair"),
    "NaN": ({"a": [1, math.nan]}, "the item.a[1] is nan, which JSON cannot hold; pass null"),
    "infinity": (math.inf, "the item is inf, which JSON cannot hold"),
    "minus infinity": ([-math.inf], "the item[0] is -inf, which JSON cannot hold"),
    "2**63": (2**63, "the item is an integer beyond 64 bits; pass it as text"),
    "-2**63-1": ({"n": -(2**63) - 1}, "the item.n is an integer beyond 64 bits"),
    "10**400": (10**400, "the item is an integer beyond 64 bits"),
    "too deep": (nested(DEPTH_MAX + 1), "is nested deeper than 64 levels; flatten it"),
    "a loop": (loop, "is nested deeper than 64 levels"),
    "bytes": ({"raw": b"x"}, "the item.raw is of type bytes, which JSON cannot hold unchanged"),
    "bytearray": (bytearray(b"x"), "the item is of type bytearray"),
    "memoryview": (memoryview(b"x"), "the item is of type memoryview"),
    "set": ({"tags": {1}}, "the item.tags is of type set"),
    "frozenset": (frozenset(), "the item is of type frozenset"),
    "number as key": ({"a": {1: 2}}, "the item.a has a key of type int; JSON keys must be text"),
    "keys that would fall together": ({1: "a", "1": "b"}, "the item has a key of type int"),
    "None as key": ({None: 1}, "the item has a key of type NoneType"),
    "NUL in a key": ({"a\x00": 1}, "a key of the item holds a NUL character"),
    "half a pair in a key": ({"\ud800": 1}, "a key of the item holds half of a surrogate pair"),
    "datetime": (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "of type datetime"),
    "uuid": (uuid.UUID(int=1), "the item is of type UUID"),
    "decimal": (decimal.Decimal("0.1"), "the item is of type Decimal"),
    "object": ([object()], "the item[0] is of type object"),
    "a class": (Page, "the item is of type type"),
    "generator": ((n for n in ()), "the item is of type generator"),
    "range": (range(3), "the item is of type range"),
    "complex": (1j, "the item is of type complex"),
    "a text type of one's own": (OwnText("x"), "the item cannot be written as JSON"),
    "a number type of one's own": ([OwnNumber(1.5)], "the item cannot be written as JSON"),
    "an object in a dataclass": ({"o": Odd(object())}, "the item.o cannot be written as JSON"),
    "NaN in a dataclass": (Odd(math.nan), "the item.field is nan"),
    "NUL in a dataclass": (Page(1, "\x00"), "the item.text holds a NUL character"),
    "half a pair in a struct": (Report("\ud800"), "the item.name holds half of a surrogate pair"),
    "a loop through a dataclass": (Odd(loop), "the item cannot be written as JSON"),
}  # fmt: skip


@pytest.mark.parametrize("what", KEPT_OUT)
def test_what_would_be_changed_in_silence_is_refused_with_its_place(what):
    value, words = KEPT_OUT[what]
    with pytest.raises(PayloadRefused) as caught:
        through(value)
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert len(message) < 500


def test_a_strange_key_cannot_spoil_the_message():
    with pytest.raises(PayloadRefused) as caught:
        through({"two\nlines \x1b[2J": {"x" * 10_000: [math.nan]}})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_the_size_is_counted_in_bytes_and_its_limit_is_let_in():
    assert len(through("é" * 49, bytes_max=100)) == 51
    with pytest.raises(PayloadRefused) as caught:
        through("é" * 50, bytes_max=100)
    assert str(caught.value) == (
        "the item is 102 bytes long, at most 100 are accepted; store it elsewhere and pass a "
        "reference"
    )


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\x00")), inner, max_size=4
        )
    ),
    max_leaves=20,
)


def same(one, other) -> bool:
    """Equal, and of equal types and signs all the way down."""
    return repr(one) == repr(other)


@given(plain)
def test_every_json_value_comes_back_as_it_went(value):
    assert same(decode(through(value)), value)


@given(plain)
def test_everybody_elses_reader_reads_the_same(value):
    assert same(json.loads(through(value)), value)


def test_a_door_that_lost_a_sign_would_be_caught():
    assert not same(0.0, -0.0)
    assert not same(1, 1.0)
    assert not same(1, True)


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
            | st.frozensets(st.integers(), max_size=3)
        ),
        max_leaves=8,
    )
)
def test_anything_at_all_is_let_in_whole_or_refused(value):
    try:
        text = through(value)
    except PayloadRefused:
        return
    assert same(decode(text), value)
    assert "\x00" not in text
