"""Access tokens: kept by a hash, found by id, revoked once."""

from datetime import timedelta
from typing import Any

from perdure.model.access import AccessScope, AccessToken, NewAccessToken
from perdure.model.nouns import replace
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, uuid_of


class AccessTokensContract(OnAFreshStore):
    """What opens the door to people who do not import Perdure."""

    def _keep(self, n: int = 1, **changes: Any) -> AccessToken:
        new = NewAccessToken(
            uuid_of(n), f"hash {n}", "front end", "ann", (AccessScope.SUBMIT, AccessScope.READ)
        )
        return self.place.control.add_access_token(replace(new, **changes), DEED)

    def test_an_access_token_is_kept_as_it_was_told(self) -> None:
        now = self.clock.now()
        expires_at = now + timedelta(days=30)
        kept = self._keep(expires_at=expires_at)
        assert kept == AccessToken(
            uuid_of(1),
            "hash 1",
            "front end",
            "ann",
            (AccessScope.SUBMIT, AccessScope.READ),
            now,
            expires_at,
            None,
        )
        assert self.place.reader.access_token(kept.id) == kept
        (deed,) = self.place.reader.deeds(subject=kept.id)
        assert (deed.verb, deed.by_whom) == ("create token", DEED.by_whom)

    def test_the_same_id_is_the_same_access_token(self) -> None:
        kept = self._keep()
        assert self._keep(name="another", hash="another") == kept
        assert len(self.place.reader.deeds(subject=kept.id)) == 1

    def test_an_access_token_that_there_is_not_is_not_found(self) -> None:
        self._keep()
        find = self.place.reader.access_token
        assert find(uuid_of(2)) is find("no id") is None

    def test_access_tokens_come_newest_first(self) -> None:
        first, second = self._keep(1), self._keep(2)
        listed = self.place.reader.access_tokens
        assert (listed(), listed(limit=1)) == ([second, first], [second])

    def test_a_login_is_not_listed_and_goes_some_time_after_it_has_expired(self) -> None:
        token, ends_at = self._keep(1), self.clock.now() + timedelta(hours=1)
        login = self._keep(2, scopes=(), expires_at=ends_at)
        lasting = self._keep(3, expires_at=ends_at)
        read, listed = self.place.reader.access_token, self.place.reader.access_tokens
        assert (login.scopes, read(login.id)) == ((), login)
        assert listed() == [lasting, token]
        self.clock.push(3_599)
        self._keep(4, scopes=(), expires_at=ends_at + timedelta(hours=1))
        assert read(login.id) == login
        self.clock.push(1)
        self._keep(5, scopes=(), expires_at=ends_at + timedelta(hours=1))
        assert read(login.id) is None
        assert listed() == [lasting, token]

    def test_an_access_token_is_revoked_once_and_stays_so(self) -> None:
        kept, other = self._keep(1), self._keep(2)
        self.clock.push(5)
        revoke, now = self.place.control.revoke_access_token, self.clock.now()
        assert (revoke(kept.id, DEED), revoke(kept.id, DEED)) == (True, False)
        self.clock.push(5)
        assert self.place.reader.access_token(kept.id) == replace(kept, revoked_at=now)
        assert self._keep(1) == replace(kept, revoked_at=now)
        assert self.place.reader.access_token(other.id) == other
        deeds = self.place.reader.deeds(subject=kept.id)
        assert [one.verb for one in deeds] == ["revoke token", "create token"]
        assert not revoke(uuid_of(9), DEED)
