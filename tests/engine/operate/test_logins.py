"""Logins: they speak for the token they were made with, for as long as that is good, and end when they are ended."""

import re
from datetime import timedelta
from random import Random

import pytest

from perdure.engine.ids import Ids
from perdure.engine.operate.access import create_token, principal_of, revoke_token
from perdure.engine.operate.logins import LOGIN_S_MAX, log_in, log_out, login_of
from perdure.model.operations import Deed

ANN = Deed("ann", "for the front end")
CHANCE = Random(7)


def token(place, **changes):
    given = {"name": "web", "owner": "ann", "scopes": ["submit", "read"], **changes}
    return create_token(place.reader, place.control, Ids(place.clock, CHANCE), deed=ANN, **given)


def begin(place, text):
    return log_in(place.reader, place.control, Ids(place.clock, CHANCE), text)


def test_a_login_speaks_for_its_token_until_it_is_ended(either):
    text, kept = token(either)
    first, second = begin(either, text), begin(either, text)
    login = login_of(either.reader, first)
    assert login.principal == principal_of(either.reader, text)
    assert login.expires_at == either.reader.now() + timedelta(seconds=LOGIN_S_MAX)
    assert login.csrf != login_of(either.reader, second).csrf
    log_out(either.control, login)
    assert login_of(either.reader, first) is None
    assert login_of(either.reader, second) is not None
    deeds = either.reader.deeds(subject=login.id)
    assert [(one.verb, one.by_whom, one.reason) for one in deeds] == [
        ("revoke token", "web", "logout"),
        ("create token", "web", f"login by token {kept.id}"),
    ]


def test_a_login_ends_with_its_token(either):
    text, kept = token(either)
    login = begin(either, text)
    revoke_token(either.reader, either.control, kept.id, ANN)
    assert (login_of(either.reader, login), begin(either, text)) == (None, None)


def test_a_login_ends_with_its_time_and_no_later_than_its_token(either):
    lasting = begin(either, token(either)[0])
    short = begin(either, token(either, expires_s=60.0)[0])
    either.clock.push(59)
    assert login_of(either.reader, short) is not None
    either.clock.push(1)
    assert login_of(either.reader, short) is None
    either.clock.push(LOGIN_S_MAX - 61)
    assert login_of(either.reader, lasting) is not None
    either.clock.push(1)
    assert login_of(either.reader, lasting) is None


def test_a_login_is_no_token_and_a_token_no_login(either):
    text, _ = token(either)
    login = begin(either, text)
    id, _, secret = login.split(".")
    assert principal_of(either.reader, f"perdure_{id}_{secret}") is None
    assert login_of(either.reader, text) is None
    assert begin(either, login) is None


def test_a_login_cannot_be_made_to_speak_for_another_token(either):
    mine = begin(either, token(either)[0])
    _, wider = token(either, owner="", scopes=["admin"])
    id, _, secret = mine.split(".")
    assert login_of(either.reader, f"{id}.{wider.id.replace('-', '')}.{secret}") is None


@pytest.mark.parametrize("spoil", [
    lambda text: "", lambda text: text[:-1], lambda text: text[:-1] + ("a" if text[-1] != "a" else "b"),
    lambda text: f" {text}", lambda text: text + "\n", lambda text: "0" * 32 + text[32:],
])  # fmt: skip
def test_a_text_that_is_no_login_of_ours_speaks_for_nobody(either, spoil):
    assert login_of(either.reader, spoil(begin(either, token(either)[0]))) is None


def test_nothing_that_is_kept_of_a_login_opens_it(either):
    login = begin(either, token(either)[0])
    id, owner, secret = login.split(".")
    kept = either.reader.access_token(
        re.sub(r"(.{8})(.{4})(.{4})(.{4})(.*)", r"\1-\2-\3-\4-\5", id)
    )
    assert secret not in repr(kept) + repr(either.reader.deeds())
    assert login_of(either.reader, f"{id}.{owner}.{kept.hash[:43]}") is None
