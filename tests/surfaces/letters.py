"""A store with a run and its dead letters, an app and a worker for it, and the command line beside them."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from perdure import App, StageError
from perdure.model.errors import PerdureError
from perdure.surfaces.cli.root import cli

ITEMS = 12
BAD = (3, 7, 11)  # refused by stage two until they are mended
RAISED_AT = 44  # the line that does


class Office:
    """Twelve items through two stages: three fail for good, one of them with a code of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.mended = folder / "mended"
        self.gone = folder / "gone"
        self.app = App(url)
        self.pipe = self._declare()

    def _declare(self):
        app = self.app

        @app.stage(policy="datasets")
        def one(item, context):
            context.usage(tokens_in=10, tokens_out=2, cost_usd=0.25)
            return item

        @app.stage(policy="gateway-worker")
        def two(item, context):
            if item["n"] in BAD and not self.mended.exists():
                context.capture(f"raw {item['n']}")
                kind = "input_invalid" if item["n"] != 11 else "content_refused"
                raise StageError(kind, f"bad row {item['n']}")
            return item["n"] * 2

        def there(item):
            return not (self.gone.exists() and item["n"] == 3)

        return app.pipeline("rows", one, two, source_exists=there)

    def feed(self, **options: Any):
        """A run that has ended, three of its items dead."""
        options = {"name": "march", "owner": "ann", "failure_budget": 0.9} | options
        with self.app.working(concurrency=4, poll_s=0.05):
            run = self.pipe.run(({"n": n} for n in range(ITEMS)), key="n", **options)
            run.wait(wait_s=30)
        return run

    def __call__(self, *words: str, code: int = 0, stdin: str | None = None) -> str:
        done = self.run(*words, stdin=stdin)
        assert done.exit_code == code, (done.output, done.exception)
        return done.output

    def run(self, *words: str, stdin: str | None = None) -> Result:
        """Run a command of this store."""
        return CliRunner().invoke(cli, [*words, "--store", self.url], input=stdin)

    def json(self, *words: str, code: int = 0) -> Any:
        done = self.run(*words, "--json")
        assert done.exit_code == code, (done.output, done.exception)
        return json.loads(done.stdout)

    def error(self, *words: str, stdin: str | None = None) -> str:
        """The one line that a user is told when a command cannot be done."""
        done = self.run(*words, stdin=stdin)
        assert isinstance(done.exception, PerdureError), (done.output, done.exception)
        assert done.exception.exit_code == 2
        return str(done.exception)

    def ids(self, *words: str) -> list[str]:
        """The ids of dead letters, oldest first."""
        return [one["id"] for one in reversed(self.json("dead", "list", *words))]

    def command(self, *words: str) -> list[str]:
        """The same as a process of its own."""
        return [sys.executable, "-m", "perdure.surfaces.cli", *words, "--store", self.url]


@contextmanager
def office_at(url: str, folder: Path) -> Iterator[Office]:
    """An office that is closed in the end."""
    office = Office(url, folder)
    yield office
    office.app.close()


# The same app as a module, for commands that are told its name.
MODULE = """
from pathlib import Path
from perdure import App

app = App({url!r})


@app.stage
def one(item):
    return item


@app.stage
def two(item):
    return item


rows = app.pipeline("rows", one, two, source_exists=lambda item: item["n"] != 3)
"""


def module_in(folder: Path, url: str, name: str) -> str:
    """Write the module, and say its name."""
    (folder / f"{name}.py").write_text(MODULE.format(url=url))
    return name
