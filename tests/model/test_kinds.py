"""The failure kinds: one row of facts each, and sentences that may be shown to anybody."""

import pytest

from perdure.model.kinds import GROUPS, KINDS, Blame, FailureClass, Kind, PauseScope, Sign


def test_every_kind_has_facts():
    assert set(KINDS) == set(Kind)


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_has_one_plain_public_sentence(kind):
    sentence = KINDS[kind].sentence
    assert sentence.endswith(".")
    assert sentence[0].isupper()
    assert sentence.isprintable()
    assert len(sentence) <= 100


def test_no_two_kinds_say_the_same():
    assert len({facts.sentence for facts in KINDS.values()}) == len(KINDS)


def test_what_blames_the_upstream_is_a_bad_sign_and_so_is_the_unknown():
    bad = {kind for kind, facts in KINDS.items() if facts.sign is Sign.BAD}
    blamed = {kind for kind, facts in KINDS.items() if facts.blame is Blame.UPSTREAM}
    assert bad == blamed | {Kind.UNKNOWN}


def test_what_proves_an_answer_is_a_good_sign_and_never_blames_the_upstream():
    good = {kind for kind, facts in KINDS.items() if facts.sign is Sign.GOOD}
    assert good == {Kind.INVALID_OUTPUT, Kind.TRUNCATED_OUTPUT, Kind.CONTENT_REFUSED}
    proved = {kind for kind, facts in KINDS.items() if facts.proved_by_status}
    assert proved == {Kind.INVALID_REQUEST, Kind.TOO_LARGE, Kind.NOT_FOUND}
    assert {KINDS[kind].sign for kind in proved} == {Sign.NEITHER}


def test_nothing_about_a_credential_is_a_sign_of_its_upstream():
    scoped = [facts for facts in KINDS.values() if facts.scope is PauseScope.CREDENTIAL]
    assert {facts.sign for facts in scoped} == {Sign.NEITHER}


def test_a_limit_is_never_somebodys_failure():
    limits = [f for f in KINDS.values() if f.failure_class is FailureClass.RATE_LIMITED]
    assert len(limits) == 2
    assert {facts.blame for facts in limits} == {Blame.NOBODY}
    assert {facts.sign for facts in limits} == {Sign.NEITHER}


def test_what_the_caller_has_to_mend_is_final():
    mended = [facts for facts in KINDS.values() if facts.blame is Blame.CALLER]
    assert {facts.failure_class for facts in mended} == {FailureClass.FINAL}


def test_what_holds_a_credential_is_about_a_credential():
    scoped = {kind for kind, facts in KINDS.items() if facts.scope is PauseScope.CREDENTIAL}
    assert scoped == {Kind.QUOTA_WINDOW, Kind.BILLING, Kind.AUTH}


def test_no_kind_is_in_two_groups_and_no_group_has_the_name_of_a_kind():
    grouped = [kind for kinds in GROUPS.values() for kind in kinds]
    assert len(grouped) == len(set(grouped))
    assert not set(GROUPS) & set(Kind)


def test_the_transient_kinds_are_those_that_blame_the_upstream():
    blamed = {kind for kind, facts in KINDS.items() if facts.blame is Blame.UPSTREAM}
    assert GROUPS["transient"] == blamed
    assert {KINDS[kind].failure_class for kind in GROUPS["request"] | GROUPS["account"]} == {
        FailureClass.FINAL
    }
    assert {KINDS[kind].failure_class for kind in GROUPS["limits"]} == {FailureClass.RATE_LIMITED}
