"""A secret is shown masked, whoever shows it, and is never written down."""

import copy
import json
import logging
import pickle
from dataclasses import dataclass

import msgspec
import pytest

from perdure.model.events import Event, EventName
from perdure.model.secret import Secret
from perdure.observers.event_lines import JsonFormatter, TextFormatter, log_record_of

CANARY = "canary-7QpLs0mVn3"
SECRET = Secret(CANARY)


@dataclass
class Held:
    """What has a secret among its fields."""

    password: Secret


class Told(msgspec.Struct):
    """The same, as a noun."""

    password: Secret


SHOWN = {
    "str": lambda: str(SECRET),
    "repr": lambda: repr(SECRET),
    "format": lambda: f"{SECRET} {SECRET!r} {SECRET!s} {SECRET:>10}",
    "list": lambda: str([SECRET, {"x": SECRET}]),
    "dataclass": lambda: repr(Held(SECRET)),
    "struct": lambda: repr(Told(SECRET)),
    "error": lambda: str(ValueError(SECRET)),
    "json": lambda: json.dumps(SECRET, default=str),
}


@pytest.mark.parametrize("how", SHOWN)
def test_it_is_masked_however_it_is_shown(how):
    assert "***" in SHOWN[how]()
    assert CANARY not in SHOWN[how]()


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_it_is_masked_in_the_log(formatter):
    event = Event(EventName.STORE_AWAY, {"reason": SECRET})
    line = formatter.format(log_record_of(event, logging.WARNING))
    assert "***" in line
    assert CANARY not in line


WRITTEN = {
    "json": json.dumps,
    "msgspec": msgspec.json.encode,
    "pickle": pickle.dumps,
    "copy": copy.deepcopy,
    "join": "".join,
}


@pytest.mark.parametrize("how", WRITTEN)
def test_it_is_not_written_down(how):
    with pytest.raises(TypeError) as refused:
        WRITTEN[how]([SECRET])
    assert CANARY not in str(refused.value)


def test_whoever_has_to_know_it_is_told():
    assert SECRET.reveal() == CANARY
    assert {SECRET} == {Secret(CANARY)}
    assert Secret("another") != SECRET
    assert SECRET != CANARY
