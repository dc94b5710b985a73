"""The room that good answers tell of: the tightest counts, and garbage says nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from perdure.rules.hints.calls_left import Room, room_of

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def in_s(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


OPENAI = {
    "x-ratelimit-limit-requests": "500",
    "x-ratelimit-remaining-requests": "20",
    "x-ratelimit-reset-requests": "1m0s",
}
ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "1",
    "anthropic-ratelimit-requests-reset": "2026-01-01T12:00:30Z",
}


@pytest.mark.parametrize(
    ("headers", "room"),
    [
        (OPENAI, Room(20, in_s(60), 500)),
        (ANTHROPIC, Room(1, in_s(30), 50)),
        ({**OPENAI, **ANTHROPIC}, Room(1, in_s(30), 50)),
        ({"x-ratelimit-remaining": "7", "x-ratelimit-reset": "10"}, Room(7, in_s(10))),
        ({}, None),
        ({**OPENAI, "x-ratelimit-remaining-requests": "many"}, None),
        ({**OPENAI, "x-ratelimit-remaining-requests": "-1"}, None),
        ({**OPENAI, "x-ratelimit-reset-requests": "soon"}, None),
        ({**OPENAI, "x-ratelimit-reset-requests": "0s"}, None),
        ({**OPENAI, "x-ratelimit-reset-requests": "100h"}, None),
        ({**OPENAI, "x-ratelimit-reset-requests": "500ms"}, Room(20, in_s(0.5), 500)),
        ({**OPENAI, "x-ratelimit-reset-requests": "24h"}, Room(20, in_s(86_400), 500)),
        ({**OPENAI, "x-ratelimit-remaining-requests": "1" + "0" * 12}, Room(10**12, in_s(60), 500)),
        ({**OPENAI, "x-ratelimit-remaining-requests": "2" + "0" * 12}, None),
        ({**OPENAI, "x-ratelimit-limit-requests": "1" + "0" * 12}, Room(20, in_s(60), 10**12)),
        ({**OPENAI, "x-ratelimit-limit-requests": "2" + "0" * 12}, Room(20, in_s(60), None)),
        ({**OPENAI, "x-ratelimit-limit-requests": "?"}, Room(20, in_s(60), None)),
    ],
)
def test_a_room_is_read_from_the_headers_that_tell_it(headers, room):
    assert room_of(headers, NOW) == room


def test_the_tightest_room_is_the_one_that_lets_the_fewest_calls_start_each_second():
    """More calls are left of the other, but they must last for longer."""
    plain = {"x-ratelimit-remaining": "30", "x-ratelimit-reset": "3600"}
    assert room_of({**OPENAI, **plain}, NOW) == Room(30, in_s(3600))
