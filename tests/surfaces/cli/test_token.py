"""perdure token: who may use the HTTP API."""

from perdure.engine.operate.access import principal_of
from perdure.model.access import AccessScope
from tests.surfaces.letters import Office


def test_a_token_is_shown_once_and_opens_until_it_is_revoked(office: Office):
    made = office.json(
        "token", "create", "--name", "web", "--owner", "ann", "--scope", "submit", "--by", "bob"
    )
    reader = office.app._session.opened.reader
    speaks_for = principal_of(reader, made["token"])
    assert (speaks_for.name, speaks_for.owner, speaks_for.scopes) == (
        "web",
        "ann",
        {AccessScope.SUBMIT},
    )
    assert made["token"] not in office("token", "list")
    (one,) = office.json("token", "list")
    assert (one["id"], one["is_good"], "hash" in one) == (made["id"], True, False)
    assert office("token", "revoke", made["id"]) == f"{made['id']}: revoked\n"
    assert principal_of(reader, made["token"]) is None
    assert "revoked 20" in office("token", "list")
    assert [(deed.verb, deed.by_whom) for deed in reader.deeds(subject=made["id"])][-1] == (
        "create token",
        "bob",
    )


def test_what_is_wrong_with_a_token_is_named(office: Office):
    asked = ("token", "create", "--name", "web")
    assert office.error(*asked, "--scope", "read").endswith("this one has no owner; name one")
    said = office.error(*asked, "--owner", "ann", "--scope", "read", "--expires", "soon")
    assert said == "--expires is 'soon'; write how long it is good, as in 12h or 30d"
    assert office.error("token", "revoke", "nope") == "no token 'nope'; see: perdure token list"
    assert office("token", "list").startswith("no tokens; make one: perdure token create")
