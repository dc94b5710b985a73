"""From a save to a verdict: read what it claims, install the version of the game that it asks for, and replay it in a process of its own."""

import os
import subprocess
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec

from perdure import Settings

from . import settings as known
from .errors import Variant, VerifyError
from .submissions import UNREADABLE, Submissions

MAGIC = "BURROW SAVE 1"
PROGRAM = "game.py"
SANDBOX = Path(__file__).with_name("sandbox.py")


@dataclass
class Claim:
    """What a save says of itself in its second line."""

    version: str
    category: str
    seed: int
    ticks: int
    mods: dict[str, str]


@dataclass
class Verdict:
    verdict: Literal["passed", "needs_review", "failed"]
    ticks: int
    why: str


@dataclass(frozen=True)
class Checker:
    """Replays saves by the settings in force."""

    settings: Settings
    submissions: Submissions

    @property
    def data(self) -> Path:
        """Where saves and versions of the game are kept."""
        return Path(self.settings[known.DATA]).resolve()

    def verdict(self, save: Path, category: str | None = None) -> Verdict:
        """Check and replay a save; with ``category`` it must be of that one."""
        claim = read_claim(save)
        if category not in (None, claim.category):
            raise VerifyError(Variant.BAD_SAVE, f"it is of {claim.category}, not of {category}")
        oldest = self.settings[known.OLDEST_VERSION]
        if number_of(claim.version) < number_of(oldest):
            raise VerifyError(Variant.OLD_VERSION, f"{claim.version} is older than {oldest}")
        allowed = self.submissions.mods(claim.version).items()
        other = sorted(f"{mod} {version}" for mod, version in claim.mods.items() - allowed)
        if other:
            raise VerifyError(Variant.MOD_MISMATCH, f"not allowed: {', '.join(other)}")
        return self._replay(self._install(claim.version), save)

    def _install(self, version: str) -> Path:
        """The program of a version, installed when it is first asked for; two at once do no harm."""
        games = self.data / "games"
        program = games / version / PROGRAM
        if program.is_file():
            return program
        package = self.submissions.game(version)
        try:
            games.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=games) as fresh:
                unpack(package, Path(fresh) / version)
                (Path(fresh) / version).rename(games / version)
        except OSError as wrong:
            if not program.is_file():  # else another replay was faster
                raise VerifyError(Variant.INSTALL_DIR, f"{version}: {wrong.strerror}") from wrong
        return program

    def _replay(self, program: Path, save: Path) -> Verdict:
        python, timeout_s = (self.settings[one] for one in (known.REPLAY_PYTHON, known.REPLAY_TIMEOUT_S))  # fmt: skip
        limits = (str(os.getpid()), str(self.settings[known.REPLAY_MEMORY_MB] << 20))
        command = [python, "-I", str(SANDBOX), *limits, str(program), str(save)]
        try:
            ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            wrong = f"it is not over after {timeout_s:g} s"
            raise VerifyError(Variant.REPLAY_TIMEOUT, wrong) from None
        except OSError as wrong:
            raise VerifyError(Variant.SPAWN, f"{Path(python).name}: {wrong.strerror}") from wrong
        told = (ended.stdout.strip().splitlines() or [b""])[-1]
        with suppress(*UNREADABLE):
            if ended.returncode == 0:
                return msgspec.json.decode(told, type=Verdict)
        with suppress(*UNREADABLE, KeyError):
            why = msgspec.json.decode(told, type=dict[str, str])["error"]
            raise VerifyError(Variant.REPLAY_REFUSED, why)
        words = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
        ending = f"it ended with status {ended.returncode}: {words}"
        raise VerifyError(Variant.REPLAY_CRASHED, ending)


def read_claim(save: Path) -> Claim:
    """What a save claims. A save with a command for the game's console is none that anybody should run."""
    try:
        text = save.read_bytes().decode()
    except OSError as wrong:
        raise VerifyError(Variant.GAME_IO, f"{save.name}: {wrong.strerror}") from wrong
    except UnicodeDecodeError as wrong:
        raise VerifyError(Variant.BAD_SAVE, f"it is no text: {wrong.reason}") from None
    # Lines are what the game takes for lines, and there are two at least.
    magic, header, *inputs = [*text.splitlines(), "", ""]
    if magic != MAGIC:
        raise VerifyError(Variant.BAD_SAVE, f"it does not begin with {MAGIC!r}")
    command = next((line for line in inputs if line.startswith("/")), None)
    if command is not None:
        raise VerifyError(Variant.SCRIPT_INJECTION, f"it has a console command: {command[:40]}")
    try:
        return msgspec.json.decode(header, type=Claim)
    except UNREADABLE as wrong:
        raise VerifyError(Variant.BAD_SAVE, f"its header: {wrong}") from None


def number_of(version: str) -> tuple[int, int]:
    """A version as a number that can be compared."""
    found = known.VERSION.fullmatch(version)
    if found is None:
        raise VerifyError(Variant.BAD_VERSION, f"{version!r} is no version")
    return int(found[1]), int(found[2])


def unpack(package: bytes, to: Path) -> None:
    """Unpack a version of the game, which must have its program."""
    try:
        with zipfile.ZipFile(BytesIO(package)) as archive:
            archive.getinfo(PROGRAM)
            archive.extractall(to)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, RuntimeError) as wrong:
        raise VerifyError(Variant.EXTRACTION, f"the package is damaged: {wrong}") from None
