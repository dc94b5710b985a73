"""Access tokens: made once, shown once, and good until they are revoked or expire."""

import re
from random import Random

import pytest

from perdure.engine.ids import Ids
from perdure.engine.operate.access import create_token, principal_of, revoke_token
from perdure.model.access import AccessScope, Principal
from perdure.model.errors import CallerError, ConfigError, UnknownName
from perdure.model.operations import Deed

ANN = Deed("ann", "for the front end")
CHANCE = Random(7)


def create(place, **changes):
    given = {"name": "front end", "owner": "ann", "scopes": ["submit", "read"], **changes}
    ids = Ids(place.clock, CHANCE)
    return create_token(place.reader, place.control, ids, deed=ANN, **given)


def test_a_token_speaks_for_its_owner_and_nothing_that_is_stored_opens_anything(either):
    text, kept = create(either)
    assert re.fullmatch(r"perdure_[0-9a-f]{32}_[\w-]{43}", text)
    speaks_for = principal_of(either.reader, text)
    assert speaks_for == Principal(
        "front end", "ann", frozenset({AccessScope.SUBMIT, AccessScope.READ})
    )
    secret = text.rsplit("_", 1)[1]
    assert secret not in repr(kept)
    assert secret not in repr(either.reader.deeds())
    assert (
        principal_of(either.reader, f"perdure_{kept.id.replace('-', '')}_{kept.hash[:43]}") is None
    )


@pytest.mark.parametrize("spoil", [
    lambda text: "", lambda text: text[:-1], lambda text: text[:-1] + ("a" if text[-1] != "a" else "b"),
    lambda text: text.replace("perdure_", "perdure-"), lambda text: f" {text}", lambda text: text + "\n",
    lambda text: text[:8] + "0" * 32 + text[40:],
])  # fmt: skip
def test_a_text_that_is_no_token_of_ours_speaks_for_nobody(either, spoil):
    text, _ = create(either)
    assert principal_of(either.reader, spoil(text)) is None


def test_a_token_is_good_until_it_is_revoked(either):
    text, kept = create(either)
    other, _ = create(either)
    revoke_token(either.reader, either.control, kept.id, ANN)
    assert principal_of(either.reader, text) is None
    assert principal_of(either.reader, other) is not None
    with pytest.raises(CallerError, match="was revoked before"):
        revoke_token(either.reader, either.control, kept.id, ANN)
    for unknown in ("nothing", "00000000-0000-7000-8000-000000000009"):
        with pytest.raises(UnknownName, match="no token"):
            revoke_token(either.reader, either.control, unknown, ANN)


def test_a_token_is_good_until_it_expires(either):
    text, _ = create(either, expires_s=60)
    either.clock.push(59.9)
    assert principal_of(either.reader, text) is not None
    either.clock.push(0.1)
    assert principal_of(either.reader, text) is None


@pytest.mark.parametrize(("changes", "error", "said"), [
    ({"scopes": []}, CallerError, "opens nothing; name one of submit, read, operate, read_all, admin"),
    ({"scopes": ["raed"]}, CallerError, "scope is 'raed'; it must be one of submit"),
    ({"owner": ""}, CallerError, "has no owner; name one"),
    ({"name": ""}, ConfigError, "name name ''"),
    ({"owner": " x"}, ConfigError, "owner name ' x'"),
    ({"expires_s": 0}, ConfigError, "expires_s is 0"),
])  # fmt: skip
def test_a_token_that_makes_no_sense_is_refused(either, changes, error, said):
    with pytest.raises(error) as refused:
        create(either, **changes)
    assert said in str(refused.value)
    assert either.reader.access_tokens() == []


A = AccessScope


@pytest.mark.parametrize(("scopes", "sees", "acts_on"), [
    ({A.READ}, "ann", "ann"), ({A.SUBMIT, A.OPERATE}, "ann", "ann"), ({A.READ_ALL}, None, "ann"),
    ({A.ADMIN}, None, None),
])  # fmt: skip
def test_whose_objects_a_principal_reaches(scopes, sees, acts_on):
    one = Principal("n", "ann", frozenset(scopes))
    assert (one.sees, one.acts_on) == (sees, acts_on)


def _stand_for(owner: str) -> dict[A, set[A]]:
    return {
        held: {asked for asked in A if Principal("n", owner, frozenset({held})).may(asked)}
        for held in A
    }


def test_which_scopes_stand_for_others():
    assert _stand_for("ann") == {
        A.SUBMIT: {A.SUBMIT}, A.READ: {A.READ}, A.OPERATE: {A.OPERATE},
        A.READ_ALL: {A.READ, A.READ_ALL}, A.ADMIN: set(A),
    }  # fmt: skip


def test_without_an_owner_only_the_wide_scopes_open_anything():
    """What is nobody's is the operator's."""
    assert _stand_for("") == {
        A.SUBMIT: set(), A.READ: set(), A.OPERATE: set(),
        A.READ_ALL: {A.READ, A.READ_ALL}, A.ADMIN: set(A),
    }  # fmt: skip
