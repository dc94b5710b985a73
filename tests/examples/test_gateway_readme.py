"""The commands of the gateway's README work from the folder that it names, and say in a line what is not set."""

import subprocess
import sys

from tests.house.tree import ROOT

FOLDER = ROOT / "examples" / "gateway"
COMMANDS = """
from uvicorn.importer import import_from_string
for name in ("gateway.gateway:make_gateway", "gateway.api:make_api"):
    import_from_string(name)()
"""


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=FOLDER.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_commands_work_from_the_folder_that_it_names(tmp_path):
    store = f"sqlite:///{tmp_path / 'perdure.db'}"
    where = {"AI_PROVIDERS": "a,b", "AI_GATEWAY_URL": "http://x", "PERDURE_STORE": store}
    ended = run(where, "-c", COMMANDS)
    assert ended.returncode == 0, ended.stderr
    worker = ("-m", "perdure.surfaces.cli", "config", "show", "gateway.worker:app")
    assert run(where, *worker).returncode == 0


def test_what_is_not_set_is_told_in_a_line_without_a_trace():
    ended = run({}, "-c", COMMANDS)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "AI_PROVIDERS is not set" in ended.stderr
    worker = run({}, "-m", "perdure.surfaces.cli", "worker", "gateway.worker:app")
    assert worker.returncode
    assert "AI_GATEWAY_URL is not set" in worker.stderr
    assert "Traceback" not in worker.stderr
