"""Mutation testing of the arithmetic that decides: how many planted defects do the tests notice?

Copies the sources and their tests to .mutation/, puts small defects into the files named below one at
a time with mutmut, and fails when fewer than nine in ten are noticed. mutmut has an environment of
its own there, because it does not run with the pytest that we test with.

    make mutation                     all files
    python tools/mutation.py decide   only rules/decide.py
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".mutation"
SCORE_MIN = 0.90
FILES = (
    "backoff", "decide", "rule_choice", "run_budget",
    "hints/wait_hints", "hints/header_forms", "hints/durations", "hints/moments", "hints/ratelimit_header",
    "hints/calls_left",
    "gate/gate", "gate/hold", "gate/probe", "gate/window", "gate/signs", "gate/pace", "gate/pace_trouble",
)  # fmt: skip
COPIED = (
    "src", "tests/__init__.py", "tests/conftest.py", "tests/rules",
    "docs/hints.md", "docs/decisions", "CONTRIBUTING.md",
)  # fmt: skip

SETTINGS = """
[tool.pytest.ini_options]
pythonpath = ["."]
addopts = ["--import-mode=importlib", "-m", "not long"]
filterwarnings = ["ignore"]
markers = ["long: over 30 seconds", "story: real processes"]

[tool.mutmut]
source_paths = ["src"]
only_mutate = {files}
pytest_add_cli_args_test_selection = ["tests/rules"]
also_copy = ["tests", "docs", "CONTRIBUTING.md"]
"""


def main() -> int:
    """Run, report, and say whether enough was noticed."""
    wanted = tuple(sys.argv[1:]) or FILES
    unknown = sorted(set(wanted) - set(FILES))
    if unknown:
        print(f"no such file: {', '.join(unknown)}; one of: {', '.join(FILES)}", file=sys.stderr)
        return 2
    lay_out(wanted)
    mutmut = environment() / "bin" / "mutmut"
    children = str(os.cpu_count() or 1)
    subprocess.run([mutmut, "run", "--max-children", children], cwd=WORK, check=False)
    subprocess.run([mutmut, "export-cicd-stats"], cwd=WORK, check=True)
    stats = json.loads((WORK / "mutants" / "mutmut-cicd-stats.json").read_text())
    noticed = stats["killed"] + stats["timeout"]
    total = stats["total"] - stats["skipped"]
    score = noticed / total if total else 0.0
    print(f"mutation: {noticed} of {total} defects noticed, {score:.1%} (at least {SCORE_MIN:.0%})")
    return 0 if score >= SCORE_MIN else 1


def lay_out(names: tuple[str, ...], work: Path = WORK) -> None:
    """A fresh copy of sources, tests and what the tests read; what was measured before is measured again."""
    for folder in ("src", "tests", "docs", "mutants"):
        shutil.rmtree(work / folder, ignore_errors=True)
    for name in COPIED:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, work / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, work / name)
    files = json.dumps([f"src/perdure/rules/{name}.py" for name in names])
    (work / "pyproject.toml").write_text(SETTINGS.format(files=files))


def environment() -> Path:
    """The environment of mutmut, from its own pins."""
    venv, uv = WORK / "venv", ROOT / ".venv" / "bin" / "uv"
    pins = ROOT / "requirements" / "mutation.txt"
    if not (venv / "bin" / "python").exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, venv], check=True)
    subprocess.run(
        [uv, "pip", "sync", "--quiet", "--require-hashes", pins],
        env={**os.environ, "VIRTUAL_ENV": str(venv)}, check=True,
    )  # fmt: skip
    return venv


if __name__ == "__main__":
    sys.exit(main())
