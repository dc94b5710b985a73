"""Draw the panel of `perdure run` for the README: a real run against a model that fails, kept at one of its moments.

``python tools/panel.py`` writes docs/pictures/panel.svg; `make docs-panel` calls it. It takes half a minute.
"""

import io
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from perdure.app.batch.snapshot import RunSnapshot
from perdure.surfaces.cli.root import cli
from perdure.surfaces.cli.run_panel import panel

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "panel.svg"
COMMAND = "perdure run work:answers questions.jsonl -o answers.jsonl"
ITEMS = 3_000
WIDTH = 100

WORK = """
import asyncio, random, time
from perdure import AnswerError, App

app = App()
begun = time.monotonic()


@app.stage(upstream="model")
async def ask(question, context):
    await asyncio.sleep(random.uniform(0.1, 0.5))
    if 6 < time.monotonic() - begun < 40 or random.random() < 0.02:
        raise ConnectionError("connection reset by peer")
    if question["id"] % 83 == 0:
        raise AnswerError({"error": {"type": "invalid_request_error", "message": "the prompt is empty"}})
    context.usage(tokens_in=420, tokens_out=90, cost_usd=0.0011)
    return "42"


answers = app.pipeline("answers", ask)
"""


def main(path: Path = PICTURE) -> None:
    """Run, keep a moment, draw it."""
    shots: list[RunSnapshot] = []
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            shots += moments(Path(folder))
        finally:
            os.chdir(before)
    path.write_text(drawing(chosen(shots)), encoding="utf-8")
    print(f"wrote {path.name}: one of {len(shots)} moments")


def moments(folder: Path) -> list[RunSnapshot]:
    """What the command shows, from its beginning until something has been held for a while."""
    Path(folder, "work.py").write_text(WORK)
    lines = (json.dumps({"id": number}) + "\n" for number in range(1, ITEMS + 1))
    Path(folder, "questions.jsonl").write_text("".join(lines))
    sys.path.insert(0, str(folder))
    seen: list[RunSnapshot] = []

    def keep(shot: RunSnapshot) -> None:
        seen.append(shot)
        if shot.held and is_telling(shot) and shot.still_s > 2:
            signal.raise_signal(signal.SIGINT)  # as Ctrl-C does

    @contextmanager
    def screen(*_: object, **__: object) -> Iterator[tuple[Callable[..., None], ...]]:
        yield keep, lambda _: None, True

    words = [*COMMAND.split()[1:], "--concurrency", "60"]
    with mock.patch("perdure.surfaces.cli.run.screen", screen), suppress(SystemExit):
        cli.main(words, standalone_mode=False)
    return seen


def is_telling(shot: RunSnapshot) -> bool:
    """Whether a moment has something of everything."""
    return (
        not shot.stopping
        and shot.run.counts.failed > 0
        and shot.retrying > 0
        and shot.pace.items_per_s > 0
    )


def chosen(shots: list[RunSnapshot]) -> RunSnapshot:
    """The last moment at which something was held, else the one in the middle."""
    held = [one for one in shots if one.held and is_telling(one)]
    return held[-1] if held else shots[len(shots) // 2]


def drawing(shot: RunSnapshot) -> str:
    """The panel at a moment as a picture that asks no server for a font."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(panel(shot))
    bare = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title=COMMAND, code_format=bare, unique_id="panel")


if __name__ == "__main__":
    main()
