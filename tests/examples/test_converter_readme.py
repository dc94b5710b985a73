"""The commands of the converter's README work from the folder that it names."""

import subprocess
import sys

from tests.house.tree import ROOT

FOLDER = ROOT / "examples" / "converter"
COMMANDS = """
from uvicorn.importer import import_from_string
for name in ("converter.gateway:gateway", "converter.api:make_api"):
    import_from_string(name)
"""


def test_its_commands_work_from_the_folder_that_it_names(tmp_path):
    where = {
        "DATABASE_URL": "postgresql://x/x",
        "GATEWAY_URL": "http://x",
        "UPLOADS_DIR": str(tmp_path),
        "RESULTS_DIR": str(tmp_path),
    }

    def run(*words: str) -> str:
        command = [sys.executable, *words]
        ended = subprocess.run(
            command, cwd=FOLDER.parent, env=where, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    run("-c", COMMANDS)
    assert "variable GATEWAY_URL" in run(
        "-m", "perdure.surfaces.cli", "config", "show", "converter.worker:app", "--origin"
    )
