"""The corpus and the door agree: what must be kept is let in, what cannot be kept is refused with a reason."""

import math

import msgspec
import pytest

from perdure.engine.payloads import admit, decode
from perdure.model.errors import PayloadRefused
from perdure.model.limits import DEPTH_MAX, PAYLOAD_BYTES_MAX
from perdure.testing import PAYLOADS, REFUSED


def let_in(value) -> str:
    return admit(value, what="the item", bytes_max=PAYLOAD_BYTES_MAX)


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_value_of_the_corpus_is_let_in_and_read_back_as_it_was(name):
    value = PAYLOADS[name]
    text = let_in(value)
    assert decode(text) == value
    assert msgspec.json.encode(decode(text)).decode() == text
    assert "\x00" not in text


def test_the_sign_of_zero_is_kept():
    assert math.copysign(1.0, decode(let_in(PAYLOADS["minus zero"]))) == -1.0


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_cannot_be_kept_is_refused_with_a_reason(name):
    with pytest.raises(PayloadRefused) as caught:
        let_in(REFUSED[name])
    assert str(caught.value).startswith(("the item", "a key of the item"))


def test_the_corpus_reaches_the_limits_and_the_refused_just_pass_them():
    sizes = [len(let_in(value).encode()) for value in PAYLOADS.values()]
    assert max(sizes) == PAYLOAD_BYTES_MAX
    assert let_in(PAYLOADS["lists as deep as it goes"]).count("[") == DEPTH_MAX
    too_large = msgspec.json.encode(REFUSED["just too large"])
    assert len(too_large) == PAYLOAD_BYTES_MAX + 1


def test_no_value_is_in_both():
    for name, value in REFUSED.items():
        assert not any(value is kept for kept in PAYLOADS.values()), name
