"""Walks through a document as its reader would: writes its files, types its commands, compares.

A ```python block is written to the file that its first line names (``# work.py``) and imported; a
block without such a line is run as a script. A ```toml block that names its file is written to it. In a
```console block, lines after ``$`` are typed and the lines below them are what the terminal has to show;
in a ```sh block every line is typed. What is exported is there for the commands of `curl` that follow.

What differs between two runs may differ: moments, durations, worker numbers. Job ids and process
ids in the document stand for those of this run, so that a later command can name them. A line that
is only ``…`` stands for any number of lines, and ``…`` inside a line for any text.

A command that only reads is typed again until it shows what the document shows, as a reader would
wait; everything has a deadline. A line that nobody knows how to check is a failure.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.house.markdown import Fence, fences

FILE_NAME = re.compile(r"^# ([\w/]+\.(?:py|toml))$")
READING = ("jobs", "audit", "db status", "gates show", "dead groups")
SENDING = frozenset({"-d", "--data", "--data-binary", "--json", "-X"})  # options of curl
BIN = Path(sys.executable).parent

# What may differ: first what has a name of its own in every run, then what is only a measure.
NAMED = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=pid=)\d+"
MEASURED = (
    (re.compile(r"\d{4}-\d\d-\d\d "), r"\d{4}-\d\d-\d\d "),
    (re.compile(r"\d\d:\d\d:\d\d(?:\.\d{3}|Z)"), r"\d\d:\d\d:\d\d(?:\.\d{3}|Z)"),
    (re.compile(r"(?<=after )\d+\.\d+(?= s)"), r"\d+\.\d+"),
    (re.compile(r"(?<=retry in )\d+(?:\.\d+)?(?= s)"), r"\d+(?:\.\d+)?"),
    (re.compile(r"(?<=worker )\d+|(?<=worker=)\d+"), r"\d+"),
    (re.compile(r'(?<="refused": )[1-9](?=\D)'), r"[1-9]"),  # one digit stands for a few
    (re.compile("…"), r".*"),
)


class Untrue(AssertionError):
    """The document says something that is not so."""


@dataclass(frozen=True)
class Step:
    """One command of a document, where it stands, and what it has to show; None if nothing is shown."""

    line: int
    command: str
    shown: tuple[str, ...] | None


def steps(block: Fence) -> list[Step]:
    """The commands of a console or sh block."""
    if block.language == "sh":
        return [
            Step(block.line + at, line.strip(), None)
            for at, line in enumerate(block.lines)
            if line.strip() and not line.startswith("#")
        ]
    found: list[Step] = []
    for at, line in enumerate(block.lines):
        if line.startswith("$ "):
            found.append(Step(block.line + at, line[2:].strip(), None))
        elif not found:
            raise Untrue(f"line {block.line + at} shows output before any command")
        else:
            last = found[-1]
            found[-1] = Step(last.line, last.command, (*(last.shown or ()), line))
    return found


def shown_pattern(
    shown: Sequence[str], names: Mapping[str, str]
) -> tuple[re.Pattern[str], list[str]]:
    """What the terminal has to show, as a pattern, and the names that a match binds, in order."""
    unbound: list[str] = []

    def piece(text: str, measures: Sequence[tuple[re.Pattern[str], str]]) -> str:
        if not measures:
            return re.escape(text)
        (found, replacement), *others = measures
        return replacement.join(piece(part, others) for part in found.split(text))

    def name(text: str) -> str:
        if text in names:
            return re.escape(names[text])
        if text in unbound:
            return f"(?P=n{unbound.index(text)})"
        unbound.append(text)
        return f"(?P<n{len(unbound) - 1}>{NAMED})"

    def line_pattern(line: str) -> str:
        parts = re.split(f"({NAMED})", line)
        return "".join(
            name(part) if at % 2 else piece(part, MEASURED) for at, part in enumerate(parts)
        )

    lines = [r"(?:.*\n)*?" if line.strip() == "…" else line_pattern(line) + r"\n" for line in shown]
    return re.compile("".join(lines)), unbound


@dataclass
class Walk:
    """One reading of one document, in a folder of its own."""

    folder: Path
    targets: frozenset[str]
    deadline_s: float = 120.0  # for one command to end
    patience_s: float = 60.0  # for what is shown to come true
    names: dict[str, str] = field(default_factory=dict)
    background: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)  # by %number
    typed: list[str] = field(default_factory=list)
    exported: dict[str, str] = field(default_factory=dict)
    untold: set[int] = field(default_factory=set)  # killed, but a shell may not have told of it

    def through(self, text: str) -> None:
        """Walk through all blocks in order; what runs in the background ends with the walk."""
        try:
            for block in fences(text):
                named = FILE_NAME.match(block.lines[0]) if block.lines else None
                if block.language == "python":
                    self._python(block)
                elif block.language == "toml" and named:
                    self.write(named[1], block)
                elif block.language in {"console", "sh"}:
                    for step in steps(block):
                        self.type(step)
        finally:
            for number in sorted(self.background):
                self._end(number)

    def _python(self, block: Fence) -> None:
        named = FILE_NAME.match(block.lines[0])
        path = self.write(named[1] if named else "block.py", block)
        command = ["-c", f"import {path.stem}"] if named else [path.name]
        self._run(f"line {block.line}: the python block", [str(BIN / "python"), *command])

    def write(self, name: str, block: Fence) -> Path:
        """Write a block to the file that it names."""
        path = self.folder / name
        path.write_text("\n".join(block.lines) + "\n", encoding="utf-8")
        return path

    def type(self, step: Step) -> None:
        """Type one command, and compare."""
        words = shlex.split(step.command)
        where = f"line {step.line}: {step.command}"
        self.typed.append(step.command)
        match words:
            case ["perdure", "demo"]:  # half a minute; test_readme.py compares its words
                pass
            case ["perdure" | "python" as program, *arguments, "&"]:
                self._start(where, [str(BIN / program), *arguments], step.shown)
            case ["perdure", *arguments]:
                command = [str(BIN / "perdure"), *self._renamed(arguments)]
                again = " ".join(arguments).startswith(READING) and step.shown is not None
                self._compare(where, step.shown, lambda: self._run(where, command), again=again)
            case ["python", *arguments]:
                command = [str(BIN / "python"), *arguments]
                self._compare(where, step.shown, lambda: self._run(where, command))
            case ["export", assigned]:
                name = assigned.partition("=")[0]
                assign = f"set -e; {step.command.removeprefix('export ')}"  # its own status
                shell = ["sh", "-c", f'{assign}; printf %s "${name}"']
                self.exported[name] = self._run(where, shell)
            case ["curl", *_]:
                renamed = re.sub(NAMED, lambda one: self.names.get(one[0], one[0]), step.command)
                shell, reads = ["sh", "-c", renamed], SENDING.isdisjoint(words)
                look = lambda: self._run(where, shell).rstrip() + "\n"  # noqa: E731
                self._compare(where, step.shown, look, again=reads)
            case ["kill", job] if re.fullmatch(r"%\d", job):
                self._end_gently(where, int(job[1:]))
                self.untold.add(int(job[1:]))
            case ["kill", job, "wait", same] if re.fullmatch(r"%\d;", job) and job == f"{same};":
                self._end_gently(where, int(same[1:]))
            case ["kill", "-9", pid] if pid in self.names:
                os.kill(int(self.names[pid]), signal.SIGKILL)
            case ["touch", name] if "/" not in name:
                (self.folder / name).touch()
            case ["make", *targets] if targets and self.targets.issuperset(targets):
                pass
            case ["pip", "install" | "wheel", *_]:  # test_readme.py does what these do
                pass
            case [".", ".venv/bin/activate"]:  # what `make setup` makes, and what BIN stands for
                pass
            case _:
                raise Untrue(f"{where}: nobody knows how to check this")

    def _renamed(self, arguments: Sequence[str]) -> list[str]:
        return [self.names.get(one, one) for one in arguments]

    def _run(self, where: str, command: Sequence[str]) -> str:
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=self._environment(),
                timeout=self.deadline_s,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Untrue(f"{where}\ndid not end within {self.deadline_s:g} s") from None
        if done.returncode != 0:
            raise Untrue(f"{where}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _compare(
        self,
        where: str,
        shown: Sequence[str] | None,
        look: Callable[[], str],
        *,
        again: bool = False,
        from_start: bool = True,
    ) -> None:
        seen = look()
        if shown is None:
            return
        pattern, unbound = shown_pattern(shown, self.names)
        matches = pattern.fullmatch if from_start else pattern.search
        give_up_at = time.monotonic() + self.patience_s
        while (match := matches(seen)) is None:
            if not again or time.monotonic() > give_up_at:
                wanted = "\n".join(shown)
                raise Untrue(f"{where}\nshould show\n{wanted}\n\nbut shows\n{seen}")
            time.sleep(0.1)  # between two looks, each of which is a condition of its own
            seen = look()
        self.names.update({name: match[f"n{at}"] for at, name in enumerate(unbound)})

    # -- in the background -----------------------------------------------------------------

    def _start(self, where: str, command: Sequence[str], shown: Sequence[str] | None) -> None:
        for number in self.untold:  # a shell keeps the number until it has told of the end
            raise Untrue(f"{where}: which number? Say before: kill %{number}; wait %{number}")
        number = max(self.background, default=0) + 1  # as a shell counts its jobs
        log = self.folder / f"background-{number}.log"
        with log.open("wb") as output:
            self.background[number] = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._compare(where, shown, lambda: log.read_text("utf-8"), again=True, from_start=False)

    def _end_gently(self, where: str, number: int) -> None:
        if number not in self.background:
            raise Untrue(f"{where}: there is no such job in the background")
        listens = self.background[number].args[0].endswith("perdure")  # a plain script just ends
        if (status := self._end(number)) != (0 if listens else -signal.SIGTERM):
            raise Untrue(f"{where}: it ended with {status} after SIGTERM")

    def _end(self, number: int) -> int:
        process = self.background.pop(number)
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(self.deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()  # its children see their pipe close
            return process.wait(self.deadline_s)

    def _environment(self) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if "PERDURE" not in name}
        kept["PATH"] = f"{BIN}{os.pathsep}{kept.get('PATH', '')}"
        return {**kept, **self.exported, "PERDURE_LOG_FORMAT": "text"}  # as on a terminal


def on_free_ports(text: str) -> str:
    """A document whose servers listen where nothing else does: 80xx stands for a port of this run."""
    with ExitStack() as kept:
        free: dict[str, str] = {}
        for port in re.findall(r"\b80\d\d\b", text):
            if port not in free:
                place = kept.enter_context(socket.create_server(("127.0.0.1", 0)))
                free[port] = str(place.getsockname()[1])
    return re.sub(r"\b80\d\d\b", lambda one: free[one[0]], text)


def make_targets(makefile: str) -> Iterator[str]:
    """The names that `make` may be followed by."""
    for line in makefile.splitlines():
        if found := re.match(r"^([a-z][\w-]*):(?!=)", line):
            yield found[1]
