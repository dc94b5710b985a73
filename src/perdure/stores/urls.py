"""The URLs of stores: what they name, and how they are shown."""

import re
from pathlib import Path

from perdure.model.errors import ConfigError, StoreUnavailable

POSTGRES = ("postgresql://", "postgres://")

_IN_QUERY = re.compile(r"((?:^|[?&\s])(?:ssl)?password=)('[^']*'|[^&\s]*)")


def shown_url(url: str) -> str:
    """The URL without its passwords, also where it cannot be read as one."""
    if url.startswith("sqlite:"):
        return url
    hidden = _IN_QUERY.sub(r"\1***", url)
    before = hidden.find("//") + 2 if "//" in hidden else 0
    user, at, host = hidden[before:].rpartition("@")  # an @ that is not encoded is the password's
    if not at or ":" not in user:
        return hidden
    return f"{hidden[:before]}{user.partition(':')[0]}:***@{host}"


def settled_url(url: str) -> str:
    """The URL of the same store from every folder: a relative path is taken from the present one."""
    if url.startswith(POSTGRES):
        return url
    try:
        return f"sqlite:///{Path(sqlite_path(url)).absolute()}"
    except OSError as error:
        raise StoreUnavailable(
            f"store {url!r} lies beside you, and the folder that you are in cannot be told: "
            f"{error.strerror or error}; write an absolute path"
        ) from error


def sqlite_path(url: str) -> str:
    """The file behind ``sqlite:///relative`` or ``sqlite:////absolute``."""
    if not url.startswith("sqlite:///") or url == "sqlite:///":
        raise ConfigError(
            f"store {shown_url(url)!r} is not a URL of a store; write sqlite:///work.db for a file beside "
            "you, sqlite:////var/lib/work.db for an absolute path, or "
            "postgresql://user:password@host:5432/database for a server"
        )
    path = url.removeprefix("sqlite:///")
    if path == ":memory:" or path.startswith("file:"):  # SQLite keeps these in memory, or may
        raise ConfigError(
            f"store {url!r} is no file, and what is not in a file is lost with its process; write "
            "sqlite:///work.db, or sqlite:///./file:name for a file that is called so"
        )
    return path
