"""What it costs to start: `import` with the first name used, and `--version`, ours beside procrastinate, celery and huey, in turns in one run.

CPU seconds of a whole process, less those of a Python that imports nothing. The least of all rounds is shown: what is
above it is other people's work.

    PYTHONPATH=. python benchmarks/start.py [--quick] [--json FILE] [--rounds N]
"""

import argparse
import json
import os
import sys
from pathlib import Path

IMPORTED = {
    "perdure": "App",
    "procrastinate": "App",
    "celery": "Celery",
    "huey": "SqliteHuey",
}  # names may load when used
ASKED = ("perdure", "procrastinate", "celery")  # huey has no such command
PEER = "procrastinate"


def main() -> None:
    """Measure, print a table, and write JSON where it is wanted."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument(
        "--quick", action="store_true", help="see that it runs; numbers mean nothing"
    )
    arguments.add_argument("--json", metavar="FILE", type=Path, help="write all values there")
    arguments.add_argument("--rounds", type=int, default=20, help="how often each is started")
    given = arguments.parse_args()
    found = measured(1 if given.quick else given.rounds)
    print("\n".join(told(found)))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


def measured(rounds: int) -> dict[str, dict[str, float]]:
    """By what is done, CPU seconds of each contender."""
    python = [sys.executable, "-c"]
    scripts = Path(sys.executable).parent
    started = {
        "import": {
            name: [*python, f"import {name}; {name}.{used}"] for name, used in IMPORTED.items()
        },
        "--version": {name: [str(scripts / name), "--version"] for name in ASKED},
    }
    least: dict[str, dict[str, float]] = {what: {} for what in started}
    bare = cpu_s([*python, "pass"])
    for _ in range(rounds):
        bare = min(bare, cpu_s([*python, "pass"]))
        for what, commands in started.items():
            for name, command in commands.items():
                spent = cpu_s(command)
                least[what][name] = min(spent, least[what].get(name, spent))
    return {
        what: {name: round(spent - bare, 4) for name, spent in by.items()}
        for what, by in least.items()
    }


def cpu_s(command: list[str]) -> float:
    """CPU seconds of a process and of those that it has waited for."""
    with Path(os.devnull).open("wb") as nowhere:
        actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)]
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        _, status, used = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{' '.join(command)} has failed; make setup installs the peers")
    return used.ru_utime + used.ru_stime


def told(found: dict[str, dict[str, float]]) -> list[str]:
    """A table for people."""
    lines = ["| | " + " | ".join(IMPORTED) + f" | ours / {PEER} |", "|---|" + "---|" * 5]
    for what, by in found.items():
        cells = [f"{by[name]:.3f} s" if name in by else "" for name in IMPORTED]
        lines.append(f"| {what} | {' | '.join(cells)} | {by['perdure'] / by[PEER]:.2f} |")
    return lines


if __name__ == "__main__":
    main()
