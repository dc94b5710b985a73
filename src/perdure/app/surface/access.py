"""Access tokens for people and servers: made, listed and revoked, logged in with, and whom one speaks for."""

from collections.abc import Iterable

from perdure.app.session.session import Session
from perdure.engine.operate import access, logins
from perdure.model.access import AccessToken, Login, Principal
from perdure.model.errors import CallerError
from perdure.model.operations import Deed
from perdure.rules.hints.durations import duration_s


def create_token(
    session: Session,
    *,
    name: str,
    owner: str,
    scopes: Iterable[str],
    expires: str | None,
    deed: Deed,
) -> tuple[str, AccessToken]:
    """A new token; its text is told here and never again."""
    expires_s = None if expires is None else duration_s(expires)
    if expires is not None and expires_s is None:
        raise CallerError(f"--expires is {expires!r}; write how long it is good, as in 12h or 30d")
    opened = session.opened
    return access.create_token(
        opened.reader,
        opened.control,
        session.ids,
        name=name,
        owner=owner,
        scopes=scopes,
        expires_s=expires_s,
        deed=deed,
    )


def revoke_token(session: Session, id: str, deed: Deed) -> None:
    """Let a token open nothing any more."""
    access.revoke_token(session.opened.reader, session.opened.control, id, deed)


def tokens(session: Session) -> list[AccessToken]:
    """All tokens, newest first."""
    return session.opened.reader.access_tokens()


def principal_of(session: Session, authorization: str) -> Principal | None:
    """Whom the header Authorization of a request speaks for; None where it brings no good token."""
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() != "bearer":
        return None
    return access.principal_of(session.opened.reader, text.strip())


def log_in(session: Session, token_text: str) -> str | None:
    """What a browser keeps of a login by a token; None where the token is not good."""
    opened = session.opened
    return logins.log_in(opened.reader, opened.control, session.ids, token_text)


def login_of(session: Session, text: str) -> Login | None:
    """The login that a browser speaks by."""
    return logins.login_of(session.opened.reader, text)


def log_out(session: Session, login: Login) -> None:
    """End a login, in every process."""
    logins.log_out(session.opened.control, login)
