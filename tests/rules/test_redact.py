"""Text that is safe to keep: bounded, on one line, without secrets and server paths, in linear time."""

import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st

from perdure.model.limits import MESSAGE_CHARS_MAX
from perdure.rules.redact import cut, one_line, redact_line, safe_line
from tests.rules.secrets_kit import paths, pieces, secrets

REPLACED = [
    ("Incorrect API key provided: sk-proj-abc***def. Look", "Incorrect API key provided: [secret] Look"),
    ("Authorization: Bearer abcd1234", "Authorization: [secret] [secret]"),
    ("{'x-api-key': 'hunter2'} x", "{'x-api-key': '[secret]'} x"),
    ("password=hunter2 host=db", "password=[secret] host=db"),
    ('{"password": "my pass phrase", "user": "u"}', '{"password": "[secret]", "user": "u"}'),
    ("postgres://u:p@ss@db:5432/x", "postgres://[secret]@db:5432/x"),
    ("https://h/x?key=AIzaSyD0123456789&page=2", "https://h/x?key=[secret]&page=2"),
    ("https://h/x?sig=abc%2Fdef&page=2", "https://h/x?sig=[secret]&page=2"),
    ("key id deadbeefdeadbeefdeadbeefdeadbeef0", "key id [secret]"),
    ("No such file: '/srv/my app/x.py'", "No such file: '[path]'"),
    ("at /srv/app/x.py:3 in f", "at [path]:3 in f"),
    ("cannot open /config.yaml", "cannot open [path]"),
    ("in ~/.netrc, please", "in ~[path], please"),
    (r"in C:\Program Files\App\x.py line 3", "in [path] line 3"),
    (r"on \\server\share\x", "on [path]"),
    ("see file:///srv/x for more", "see file:[path] for more"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_def", "[secret]"),
    ("-----BEGIN RSA PRIVATE KEY----- MII= -----END RSA PRIVATE KEY----- tail", "[secret] tail"),
    ("İstanbul password=hunter2 İ", "İstanbul password=[secret] İ"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "safe"), REPLACED)
def test_a_secret_or_a_path_is_replaced(text, safe):
    assert safe_line(text) == safe


KEPT = [
    "POST /v1/chat/completions failed",
    "GET https://api.example.com:8443/v1beta/models?page=2 gave 404",
    "http://127.0.0.1:8080/x is busy",
    "task-management-system at risk-free disk-pressure",
    "max_tokens=500, tokens: 30000, token limit reached",
    "ratio 1/2, and/or application/json, n/a",
    "Limit 30000, Used 29500, Requested 2000. Please try again in 3s.",
    "request req_011CQabcdefghijklmnopqrstuvwxyz012345 failed",
    "the basic plan of the bearer has ended",
    "KeyError: 'total'",
    "retry in 53s (quota GenerateRequestsPerDayPerProjectPerModel-FreeTier)",
    "contact a@b.example",
    "asia-pacific-region is down",
    "",
]


@pytest.mark.parametrize("text", KEPT)
def test_ordinary_text_stays(text):
    assert safe_line(text) == text


around = st.text(st.characters(codec="utf-8"), max_size=30)


@given(secrets, around, around)
@settings(max_examples=400)
def test_no_secret_survives_wherever_it_stands(secret, before, after):
    canary, text = secret
    line = safe_line(f"{before} {text} {after}")
    assert not [piece for piece in pieces(canary) if piece in line and piece not in before + after]


@given(paths, around, around)
@settings(max_examples=200)
def test_no_server_path_survives_wherever_it_stands(path, before, after):
    name, text = path
    line = safe_line(f"{before} {text} {after}")
    assert name not in line or name in before + after


@given(secrets, st.integers(0, 130), st.sampled_from(["x", "x ", "é"]))
def test_no_secret_survives_where_the_text_is_cut(secret, padding, filler):
    canary, text = secret
    for chars_max in (40, 64):
        line = safe_line(filler * padding + " " + text + " tail" * 40, chars_max)
        assert len(line) <= chars_max
        assert not [piece for piece in pieces(canary) if piece in line]


def test_a_text_that_is_cut_without_a_space_says_so():
    line = safe_line("x" * 5_000, 100)
    assert line == "x" * 99 + "…"


def test_the_form_that_keeps_secrets_would_be_caught():
    canary, text = "c4n4ryc4n4ry", "password=c4n4ryc4n4ry"
    assert [piece for piece in pieces(canary) if piece in one_line(text)]


@given(st.text(), st.integers(2, 50))
def test_a_line_is_one_bounded_printable_line(text, chars_max):
    for line in (one_line(text, chars_max), safe_line(text, chars_max)):
        assert len(line) <= chars_max
        assert line.encode().decode() == line
        assert line == " ".join(line.split())
        assert not any(char < " " or "\x7f" <= char <= "\x9f" for char in line)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)), st.integers(2, 50))
def test_a_line_marks_exactly_what_it_cut(text, chars_max):
    whole = " ".join(text.split())
    line = one_line(text, chars_max)
    if line != whole:
        assert line.endswith("…")
        assert whole.startswith(line[:-1].rstrip())


def test_what_turns_the_direction_of_writing_is_removed():
    assert one_line("abc\u202egnp.exe\u2066 \u200b\ufeffx") == "abc gnp.exe x"


@given(st.text())
def test_making_safe_twice_changes_nothing_more(text):
    once = safe_line(text)
    assert safe_line(once) == once


def test_a_line_that_fits_is_not_cut():
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert cut("abc", 3, whole=False) == "ab…"


NASTY = [
    "key-", "key ", "://a:", "://a@", "?", "?key", "sk-", "sk_live_", "a", "/", "/a", "'/", "\\",
    "\\\\a\\", "bearer ", "-----BEGIN ", "-----BEGIN A-----", "api key is is: ", "\"'", "password",
    'password="', "C:\\a b", "eyJ", "@", "key" + "-" * 40, "token a a a ", "AKIA", "&a=", "~/", "=",
    "secret:", "password=a:", "authorization: bearer ", "hf_", "key, b'",
]  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", NASTY)
def test_a_text_made_to_be_slow_is_not(text):
    """200,000 characters: what is quadratic would take minutes."""
    redact_line((text * 200_000)[:200_000])


def test_fifty_megabytes_cost_no_more_than_their_head():
    text = "password=x " * 5_000_000
    tracemalloc.start()
    try:
        assert len(safe_line(text)) == MESSAGE_CHARS_MAX
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 2_000_000  # whoever reads it all makes a second one of it
