"""Wait hints: what is plain is believed, garbage is ignored, and each source has its place.

The cases themselves stand in docs/hints.md, which test_hints_table.py executes; what holds for any
input is in test_hints_properties.py.
"""

from datetime import UTC, datetime

import pytest

from perdure.model.outcomes import Evidence
from perdure.rules.hints.wait_hints import Hint, server_verdict, wait_hint

NOW = datetime(2026, 7, 29, 12, tzinfo=UTC)

# One source a line, in the order in which they are asked.
ORDER = [
    ("stage", {"wait_s": 1.0}),
    ("retry-after-ms", {"headers": {"retry-after-ms": "2000"}}),
    ("x-ms-retry-after-ms", {"headers": {"x-ms-retry-after-ms": "3000"}}),
    ("x-amz-retry-after", {"headers": {"x-amz-retry-after": "4000"}}),
    ("grpc-retry-pushback-ms", {"headers": {"grpc-retry-pushback-ms": "5000"}}),
    ("retry-after", {"headers": {"retry-after": "6"}}),
    ("retryDelay", {"facts": {"retryDelay": "7s"}}),
    ("retryAfterMs", {"facts": {"retryAfterMs": "8000"}}),
    ("retryAfterSeconds", {"facts": {"retryAfterSeconds": "9"}}),
    ("x-ratelimit-reset", {"headers": {"x-ratelimit-reset": "10"}}),
    ("quotaResetDelay", {"facts": {"quotaResetDelay": "11s"}}),
    ("quotaResetTimeStamp", {"facts": {"quotaResetTimeStamp": "2026-07-29T12:00:12Z"}}),
    ("resets_at", {"facts": {"resets_at": "2026-07-29T12:00:13Z"}}),
    ("message", {"message": "try again in 14s"}),
]


def evidence(*lines: dict) -> Evidence:
    return Evidence(
        message=" ".join(line.get("message", "") for line in lines),
        headers=tuple(pair for line in lines for pair in line.get("headers", {}).items()),
        facts=tuple(pair for line in lines for pair in line.get("facts", {}).items()),
        wait_s=next((line["wait_s"] for line in lines if "wait_s" in line), None),
    )


def garbled(line: dict) -> dict:
    """The same source with a value that says nothing."""
    if "wait_s" in line:
        return {"wait_s": -1.0}
    return {
        part: "later" if part == "message" else dict.fromkeys(values, "?")
        for part, values in line.items()
    }


@pytest.mark.parametrize("at", range(len(ORDER)), ids=[source for source, _ in ORDER])
def test_each_source_is_asked_in_its_turn(at):
    hint = wait_hint(evidence(*(line for _, line in ORDER[at:])), NOW)
    assert hint == Hint(at + 1.0, ORDER[at][0])


@pytest.mark.parametrize("at", range(1, len(ORDER)), ids=[source for source, _ in ORDER[1:]])
def test_garbage_in_every_earlier_source_does_not_silence_a_later_one(at):
    lines = [garbled(line) for _, line in ORDER[:at]] + [line for _, line in ORDER[at:]]
    assert wait_hint(evidence(*lines), NOW) == Hint(at + 1.0, ORDER[at][0])


def test_garbage_everywhere_is_no_hint():
    assert wait_hint(evidence(*(garbled(line) for _, line in ORDER)), NOW) is None


def test_nothing_at_all_is_no_hint():
    assert wait_hint(Evidence(), NOW) is None
    assert wait_hint(Evidence(headers=(("x-request-id", "5"), ("age", "5"))), NOW) is None
    assert server_verdict(Evidence()) is None


@pytest.mark.parametrize("wait_s", ["5", True, None, [5], 10**400, -(10**400), -0.001])
def test_a_stage_that_hands_over_nonsense_is_not_heard(wait_s):
    assert wait_hint(Evidence(wait_s=wait_s), NOW) is None


def test_a_stage_may_speak_in_whole_seconds():
    hint = wait_hint(Evidence(wait_s=5), NOW)
    assert hint == Hint(5.0, "stage")
    assert type(hint.seconds) is float


# -- the end of time ------------------------------------------------------------------------


def test_a_wait_that_ends_with_the_year_9999_is_believed_and_a_longer_one_is_not():
    now = datetime(9999, 12, 31, 23, 58, 19, tzinfo=UTC)
    assert wait_hint(Evidence(headers=(("retry-after", "100"),)), now).seconds == 100
    assert wait_hint(Evidence(headers=(("retry-after", "100.001"),)), now) is None
    assert wait_hint(Evidence(wait_s=101.0), now) is None


def test_of_two_limits_the_one_beyond_the_year_9999_is_ignored_and_the_other_is_not():
    both = (
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "9999999999h"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "6s"),
    )
    assert wait_hint(Evidence(headers=both), NOW) == Hint(6.0, "x-ratelimit-reset-tokens")


@pytest.mark.parametrize("name", ["retry-after", "x-ratelimit-reset"])
def test_an_epoch_beyond_the_year_9999_is_ignored_whatever_the_server_s_clock_says(name):
    date = ("date", "Fri, 31 Dec 9999 23:59:59 GMT")
    last, beyond = "253402300799", "253402300800"
    assert wait_hint(Evidence(headers=(date, (name, last))), NOW) == Hint(0.0, name)
    assert wait_hint(Evidence(headers=(date, (name, beyond))), NOW) is None


def test_numbers_are_waits_up_to_a_billion_and_moments_above():
    def reset(text: str) -> float:
        return wait_hint(Evidence(headers=(("x-ratelimit-reset", text),)), NOW).seconds

    assert reset("1000000000") == 1e9
    assert reset("1000000000.5") == 0.0
    assert reset("1785326401") == 1.0
    assert reset("1785326401250") == 1.25
    late = datetime(2001, 1, 1, tzinfo=UTC)
    ms_is_needed = Evidence(headers=(("x-ratelimit-reset", "1000000000001"),))
    assert wait_hint(ms_is_needed, late).seconds == pytest.approx(
        1_000_000_000.001 - late.timestamp()
    )
    assert wait_hint(Evidence(headers=(("x-ratelimit-reset", "1000000000000"),)), late) is None


# -- the server's clock ---------------------------------------------------------------------


def test_a_server_that_tells_two_times_is_not_asked_for_the_time():
    headers = (
        ("date", "Wed, 29 Jul 2026 11:00:00 GMT"),
        ("date", "Wed, 29 Jul 2026 11:00:00 GMT"),
        ("retry-after", "Wed, 29 Jul 2026 12:00:30 GMT"),
    )
    assert wait_hint(Evidence(headers=headers), NOW).seconds == 30.0
    assert wait_hint(Evidence(headers=headers[1:]), NOW).seconds == 3630.0


# -- repeated headers -----------------------------------------------------------------------


def test_a_header_may_come_thirty_two_times_and_no_more():
    assert wait_hint(Evidence(headers=(("retry-after", ",".join("5" * 32)),)), NOW).seconds == 5
    assert wait_hint(Evidence(headers=(("retry-after", ",".join("5" * 33)),)), NOW) is None


@pytest.mark.parametrize(
    ("remaining", "heard"),
    [
        ("0", True),
        ("0.0", True),
        ("0, 5", True),
        ("5, 0", True),
        ("5", False),
        ("x", False),
        ("", False),
        ("-1", False),
    ],
)
def test_a_limit_is_used_up_when_nothing_is_left_of_it(remaining, heard):
    headers = (("x-ratelimit-remaining-tokens", remaining), ("x-ratelimit-reset-tokens", "6s"))
    assert (wait_hint(Evidence(headers=headers), NOW) is not None) is heard


@pytest.mark.parametrize(
    ("remaining", "heard"), [("0", True), ("x", True), ("-1", True), ("5", False), ("0.5", False)]
)
def test_a_plain_reset_is_heard_unless_something_is_known_to_be_left(remaining, heard):
    headers = (("x-ratelimit-remaining", remaining), ("x-ratelimit-reset", "6"))
    assert (wait_hint(Evidence(headers=headers), NOW) is not None) is heard


def test_the_longest_of_all_used_up_limits_counts_and_is_named():
    headers = (
        ("ratelimit", '"a";r=0;t=40'),
        ("x-ratelimit-reset", "30"),
        ("anthropic-ratelimit-tokens-remaining", "0"),
        ("anthropic-ratelimit-tokens-reset", "2026-07-29T12:00:50Z"),
        ("anthropic-ratelimit-tokens-limit", "0"),
    )
    assert wait_hint(Evidence(headers=headers), NOW) == Hint(
        50.0, "anthropic-ratelimit-tokens-reset"
    )
    assert wait_hint(Evidence(headers=headers[:2]), NOW) == Hint(40.0, "ratelimit")


def test_a_structured_field_may_come_in_two_lines():
    headers = (("ratelimit", '"a";r=0;t=4'), ("ratelimit", '"b";r=0;t=5'))
    assert wait_hint(Evidence(headers=headers), NOW) == Hint(5.0, "ratelimit")


# -- retryDelay and the message beside it -----------------------------------------------------


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("58.93s", 58.93), ("58s", 58.0), ("59s", 58.0), ("57.99s", 58.0), ("58.999s", 58.999)],
)
@pytest.mark.parametrize("where", ["message", "fact"])
def test_the_message_refines_a_delay_within_the_same_second_only(words, seconds, where):
    text = f"Quota exceeded. Please retry in {words}."
    facts = (("retryDelay", "58s"), ("message", text if where == "fact" else ""))
    hint = wait_hint(Evidence(message=text if where == "message" else "", facts=facts), NOW)
    assert hint == Hint(seconds, "retryDelay")


def test_the_message_refines_no_other_source():
    said = Evidence(message="Please retry in 58.93s.", facts=(("retryAfterSeconds", "58"),))
    assert wait_hint(said, NOW) == Hint(58.0, "retryAfterSeconds")


# -- time -------------------------------------------------------------------------------------

CHARS = 100_000
LONG = [
    "9" * CHARS, "9" * CHARS + "x", "0." + "1" * CHARS, "," * CHARS, "5," * (CHARS // 2), " " * CHARS + "x", "1s" * (CHARS // 2),
    "1ms" * (CHARS // 3) + "1", "Wed," * (CHARS // 4), "Wed, 29 Jul 2026 12:00:37 GMT, " * (CHARS // 31),
    "2026-07-29T12:00:37." + "0" * CHARS, "retry in " * (CHARS // 9), "try " * (CHARS // 4), "please wait " * (CHARS // 12),
    "retry in " + "9" * CHARS, "retry in 1s" + " 1s" * (CHARS // 3), "retry in 1s 1s 1s 1s 1s 1s 1s 1x " * (CHARS // 33),
    '"' * CHARS, '"a";r=0;t=1,' * (CHARS // 12) + '"a";r=0;t=1', '"a"' + ";r=0" * (CHARS // 4), '"a"' + ";" + " " * CHARS,
    '"a";r=0;t=1' + " " * CHARS + "x", '"' + "\\" * CHARS, "a" * CHARS, "(" * CHARS, "１" * CHARS, "\ud800" * CHARS,
]  # fmt: skip
EVERYWHERE = [
    "date", "retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after", "grpc-retry-pushback-ms",
    "x-ratelimit-reset", "x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset", "ratelimit", "x-should-retry",
]  # fmt: skip
FACTS = [
    "retryDelay", "retryAfterMs", "retryAfterSeconds", "quotaResetDelay", "quotaResetTimeStamp", "resets_at", "message",
    "retryable",
]  # fmt: skip


@pytest.mark.timeout(
    60
)  # all places take a tenth of a second; what is quadratic in one takes minutes
@pytest.mark.parametrize("value", LONG, ids=[value[:12] for value in LONG])
def test_a_very_long_value_costs_little_time_in_any_place(value):
    used_up = (
        ("x-ratelimit-remaining-tokens", "0"),
        ("anthropic-ratelimit-tokens-remaining", "0"),
    )
    places = [
        *(Evidence(headers=(*used_up, (name, value))) for name in EVERYWHERE),
        *(Evidence(facts=((name, value),)) for name in FACTS),
        Evidence(
            headers=(("x-ratelimit-remaining-tokens", value), ("x-ratelimit-reset-tokens", "1s"))
        ),
        Evidence(message=value),
    ]
    for place in places:
        wait_hint(place, NOW)
        server_verdict(place)
