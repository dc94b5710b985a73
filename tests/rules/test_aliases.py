"""Second names of fields: given by vocabularies, beside our own, in whatever tells of a job."""

import pytest

from perdure.app import App
from perdure.app.runs import Result
from perdure.app.session.session import aliases_in
from perdure.model.aliases import FIELD_NAMES, SHOWN_FIELDS, under_aliases
from perdure.model.errors import ConfigError
from perdure.model.states import State
from perdure.rules.policy import Policy
from perdure.rules.policy_form import policy_form, policy_from
from perdure.rules.presets import PRESETS
from perdure.rules.vocabulary import VOCABULARIES, Vocabulary
from perdure.surfaces.http.runs import RunResult
from perdure.surfaces.views import AttemptShown, JobShown


def test_an_alias_stands_beside_the_name_and_takes_no_ones_place():
    fields = {"attempts": 2, "next_run_at": "soon", "state": "queued"}
    aliases = {"attempts": "attemptCount", "next_run_at": "state", "owner": "who"}
    assert under_aliases(fields, aliases) == {**fields, "attemptCount": 2}
    assert under_aliases(fields, {}) == fields
    assert "attemptCount" not in fields


def test_what_may_have_an_alias_is_what_is_shown():
    """So that a name that is misspelt is refused, and one that is right is never."""
    good = Result("k", "id", State.SUCCEEDED, 1, "label").as_json()
    bad = Result("k", "id", State.FAILED).as_json(internal=True)
    shown = {
        name for kind in (JobShown, AttemptShown, RunResult) for name in kind.__struct_fields__
    }
    assert shown | set(good) | set(bad) == SHOWN_FIELDS


@pytest.mark.parametrize(("vocabulary", "fields", "told"), [
    ("converter", {"attempts": 2, "last_attempt_at": "then", "next_run_at": "soon"}, {"attemptCount": 2, "lastAttemptAt": "then", "retryAfter": "soon"}),
    ("converter", {"upstream_status": 502}, {"gateway_status": 502}),
    ("gateway", {"retry_after_ms": 900, "delay_ms": 700}, {"retryAfterMs": 900, "delayMs": 700}),
    ("gateway", {"request_id": "r", "attempts_max": 3}, {"x-request-id": "r", "maxAttempts": 3}),
    ("reports", {"attempts_max": 4}, {"max_attempts": 4}),
    ("classes", {"next_run_at": "soon"}, {"next_retry_at": "soon"}),
    ("kinds", {"next_run_at": "soon"}, {}),
])  # fmt: skip
def test_the_designs_behind_the_presets_find_their_names(vocabulary, fields, told):
    assert under_aliases(fields, VOCABULARIES[vocabulary].aliases) == {**fields, **told}


@pytest.mark.parametrize(("aliases", "says"), [
    ({"next_run": "retryAfter"}, "vocabulary.aliases names 'next_run', which is no field; did you mean 'next_run_at'"),
    ({"next_run_at": "retry after"}, "vocabulary.aliases.next_run_at is 'retry after'; a name is a letter"),
    ({"next_run_at": 7}, "vocabulary.aliases.next_run_at is 7"),
    ({"next_run_at": "owner"}, "vocabulary.aliases.next_run_at is 'owner', which another field is called"),
    ({"next_run_at": "x", "owner": "x"}, "is 'x', which another field is called"),
    (["next_run_at"], "vocabulary.aliases is ['next_run_at']; it must be a Mapping"),
])  # fmt: skip
def test_an_alias_that_cannot_be_is_refused_by_its_name(aliases, says):
    with pytest.raises(ConfigError) as refused:
        Vocabulary("own", aliases=aliases)
    assert says in str(refused.value)


def test_aliases_are_written_into_a_file_and_read_back():
    policy = Policy("mine", vocabulary=Vocabulary("own", aliases={"owner": "tenant"}))
    form = policy_form(policy)
    assert form["vocabulary"]["aliases"] == {"owner": "tenant"}
    assert policy_from(form) == policy
    with pytest.raises(ConfigError, match="names 'ovner', which is no field"):
        policy_from({"name": "mine", "vocabulary": {"aliases": {"ovner": "tenant"}}})


def test_a_stage_ran_alike_whatever_its_fields_are_called():
    """The hash of a stage's settings is made of the policy in words, and names are not among them."""
    plain = Policy("mine", vocabulary=Vocabulary("own"))
    other = Policy("mine", vocabulary=Vocabulary("own", aliases={"owner": "tenant"}))
    assert repr(plain) == repr(other)
    assert "retryAfter" not in repr(PRESETS["converter"])


@pytest.mark.parametrize(("setting", "found"), [
    ("", {}),
    ("classes", {"next_run_at": "next_retry_at"}),
    ("reports, owner=tenant", {"attempts_max": "max_attempts", "owner": "tenant"}),
])  # fmt: skip
def test_the_setting_takes_vocabularies_and_single_names(setting, found):
    assert aliases_in(setting) == found


@pytest.mark.parametrize(("setting", "says"), [
    ("gatewya", "aliases (PERDURE_ALIASES) has 'gatewya'; write name=alias, or a vocabulary: did you mean 'gateway'?"),
    ("ovner=tenant", "aliases (PERDURE_ALIASES) names 'ovner', which is no field; did you mean 'owner'?"),
    ("owner=", "aliases (PERDURE_ALIASES).owner is ''"),
])  # fmt: skip
def test_a_setting_that_cannot_be_is_refused(setting, says):
    with pytest.raises(ConfigError) as refused:
        aliases_in(setting)
    assert says in str(refused.value)


def test_every_alias_that_ships_names_a_field():
    for one in VOCABULARIES.values():
        assert set(one.aliases) <= FIELD_NAMES


def test_a_setting_that_cannot_be_is_told_where_the_app_is_made(monkeypatch):
    monkeypatch.setenv("PERDURE_ALIASES", "ovner=tenant")
    with pytest.raises(ConfigError, match="PERDURE_ALIASES"):
        App("sqlite:///work.db")
