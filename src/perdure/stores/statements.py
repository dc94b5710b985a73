"""One SQL statement a file, read once, named like the file."""

from importlib.resources import files
from types import SimpleNamespace


def statements(package: str, folder: str = "sql") -> SimpleNamespace:
    """The statements in a folder of a store's package, as attributes."""
    return SimpleNamespace(**texts(package, folder))


def texts(package: str, folder: str) -> dict[str, str]:
    """The statements in a folder of a store's package, by name, in order of their names."""
    found = {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in (files(package) / folder).iterdir()
        if entry.name.endswith(".sql")
    }
    return dict(sorted(found.items()))
