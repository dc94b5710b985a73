"""The URLs of stores: what they name, and how they are shown."""

import re

from perdure.model.errors import ConfigError

POSTGRES = ("postgresql://", "postgres://")

_PASSWORD = re.compile(r"(?<=:)[^:@/]*(?=@)|(?<=password=)[^&\s]*")


def shown_url(url: str) -> str:
    """The URL without its password, wherever that stands."""
    return _PASSWORD.sub("***", url) if url.startswith(POSTGRES) else url


def sqlite_path(url: str) -> str:
    """The file behind ``sqlite:///relative`` or ``sqlite:////absolute``."""
    if not url.startswith("sqlite:///") or url == "sqlite:///":
        raise ConfigError(
            f"store {url!r} is not a URL of a store; write sqlite:///work.db for a file beside "
            "you, sqlite:////var/lib/work.db for an absolute path, or "
            "postgresql://user:password@host:5432/database for a server"
        )
    return url.removeprefix("sqlite:///")
