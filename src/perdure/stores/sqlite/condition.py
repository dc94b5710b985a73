"""What a file of SQLite stands on, as the library and the machine say it."""

import os
import sqlite3
from pathlib import Path

from perdure.model.diagnoses import StoreCondition
from perdure.stores.sqlite.connection import MEMORY, translate_errors
from perdure.stores.sqlite.network_drive import NETWORK, file_system_of


def condition(path: str) -> StoreCondition:
    """The library, the file system and the room of a file."""
    if path == MEMORY:
        return StoreCondition("SQLite", sqlite3.sqlite_version_info)
    folder = str(Path(path).parent)
    kind = file_system_of(path)
    with translate_errors(path):
        room = os.statvfs(folder)
    return StoreCondition(
        "SQLite",
        sqlite3.sqlite_version_info,
        read_only=not (os.access(path, os.W_OK) and os.access(folder, os.W_OK)),
        file_system=kind,
        on_network=kind in NETWORK,
        free_bytes=room.f_bavail * room.f_frsize,
    )
