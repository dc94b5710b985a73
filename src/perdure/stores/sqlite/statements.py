"""One SQL statement a file, read once, named like the file."""

from importlib.resources import files
from types import SimpleNamespace

_FOLDER = files("perdure.stores.sqlite") / "sql"

SQL = SimpleNamespace(
    **{
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in _FOLDER.iterdir()
        if entry.name.endswith(".sql")
    }
)
