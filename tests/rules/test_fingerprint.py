import re

import pytest
from hypothesis import given, strategies as st

from perdure.model.kinds import Kind
from perdure.rules.fingerprint import fingerprint, normalise

ALIKE = {
    "numbers": ("got 5 of 12 rows", "got 17 of 4,000 rows"),
    "decimals and signs": ("took -0.5 s", "took 12.25 s"),
    "uuids": (
        "no item 018f3c2e-7b1a-7c3d-9e0f-1a2b3c4d5e6f here",
        "no item 9b2e1c4d-0000-4abc-8def-001122334455 here",
    ),
    "moments": ("at 2026-11-15T17:00:01Z: gone", "at 2025-01-02 03:04:05.678+02:00: gone"),
    "addresses of pages": (
        "GET https://a.example/x?id=1 failed",
        "GET http://b.example:8080/y failed",
    ),
    "mail addresses": ("ann@x.example is unknown", "bob.b@y.example is unknown"),
    "paths": ("cannot open /srv/in/a.pdf", "cannot open /srv/other/deep/b.pdf"),
    "quoted texts": ("item 'a b c' is missing", 'item "colour of it" is missing'),
    "texts with apostrophes beside": (
        "couldn't read 'line 5 of it', it's empty",
        "couldn't read 'line 6 of that', it's empty",
    ),
    "ids of organisations": ("org-AbCdEfGh is over its limit", "org-XyzQw is over its limit"),
    "short ids of requests": ("see req_9ZZq", "see req_abc"),
    "file names": ("cannot read invoice-12.pdf", "cannot read letter.pdf"),
    "addresses of machines": ("no route to 10.0.0.1", "no route to 192.168.12.3"),
    "long ones of machines": ("no route to fe80::1:2:3", "no route to 2001:db8:0:1:1:1:1:1"),
    "request ids": ("request req_011CTabc9xyzDEF failed", "request req_09ZZtabc9xyzDEG failed"),
    "hexadecimal": ("at 0x7f00aa", "at 0xdeadbeef01"),
    "spaces and case": ("Bad   Gateway\n", "bad gateway"),
}

APART = {
    "words": ("field 'a' is missing", "field 'a' is too long"),
    "names that are quoted": ("KeyError: 'price'", "KeyError: 'customer_id'"),
    "quoted fields": ("'price' is a required property", "'customer' is a required property"),
    "quoted types": (
        "'NoneType' object has no attribute 'text'",
        "'dict' object has no attribute 'lines'",
    ),
    "what stands between two apostrophes": (
        "invoice 12: couldn't read the date, it's empty",
        "invoice 13: couldn't find any line item, so it's empty",
    ),
    "the same numbers": ("5 rows", "5 columns"),
    "short words with digits": ("gpt-4o refused", "sonnet refused"),
}


@pytest.mark.parametrize("pair", ALIKE.values(), ids=ALIKE)
def test_messages_that_differ_in_data_alone_are_alike(pair: tuple[str, str]) -> None:
    assert normalise(pair[0]) == normalise(pair[1])
    one, other = (fingerprint(Kind.UNKNOWN, "ask", text) for text in pair)
    assert one == other


@pytest.mark.parametrize("pair", APART.values(), ids=APART)
def test_messages_that_differ_in_words_are_not(pair: tuple[str, str]) -> None:
    one, other = (fingerprint(Kind.UNKNOWN, "ask", text) for text in pair)
    assert one != other


def test_kind_and_stage_tell_failures_apart() -> None:
    marks = {
        fingerprint(kind, stage, "no")
        for kind in (Kind.TIMEOUT, Kind.NETWORK)
        for stage in ("ask", "store")
    }
    assert len(marks) == 4


@given(st.text(max_size=3_000))
def test_any_text_has_one_fingerprint_that_is_short_and_stable(text: str) -> None:
    mark = fingerprint(Kind.UNKNOWN, "ask", text)
    assert re.fullmatch("[0-9a-f]{16}", mark)
    assert mark == fingerprint(Kind.UNKNOWN, "ask", text)
    assert len(normalise(text)) <= 400


@given(st.integers(), st.integers())
def test_numbers_never_tell_failures_apart(one: int, other: int) -> None:
    assert normalise(f"row {one} of it") == normalise(f"row {other} of it")
