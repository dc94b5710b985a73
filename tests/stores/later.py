"""The version of Perdure after this one, which knows one step of the schema more, on each store.

Steps that have been released are never changed, and there may be only one of them; an upgrade has to be shown all the
same. This step does what steps do: it adds a column with a default and fills it, makes a table out of what is there,
and builds a table anew, or alters it, under what looks into it. Nothing but what is known is changed; the schema, the
commands and the workers are those of this version.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perdure.stores import migrations as module
from perdure.stores.migrations import CODE_VERSION, Migration, migrations
from perdure.stores.statements import texts

SQLITE, POSTGRES = "perdure.stores.sqlite", "perdure.stores.postgres"
CODE_LATER = CODE_VERSION + 1

_BOTH = """
ALTER TABLE perdure_jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';
UPDATE perdure_jobs SET colour = 'red' WHERE state = 'failed';

CREATE TABLE perdure_colours (
    pipeline  TEXT NOT NULL,
    colour    TEXT NOT NULL,
    jobs      BIGINT NOT NULL,
    PRIMARY KEY (pipeline, colour)
);
INSERT INTO perdure_colours (pipeline, colour, jobs)
SELECT pipeline, colour, count(*) FROM perdure_jobs GROUP BY pipeline, colour;

DROP INDEX perdure_lanes_queue;
"""
_INDEX = "CREATE INDEX perdure_lanes_queue ON perdure_lanes (queue, pipeline);\n"

# A check can be added to a table of SQLite only by building it anew. Its views go on with the new one, and its numbers
# go on where they were, even if the last rows are gone.
_ANEW = """
DROP INDEX perdure_lanes_name;
DROP INDEX perdure_lanes_run;
DROP INDEX perdure_lanes_upstream;
ALTER TABLE perdure_lanes RENAME TO perdure_old_lanes;
CREATE TABLE perdure_lanes (
    no        INTEGER PRIMARY KEY AUTOINCREMENT,
    queue     TEXT NOT NULL,
    category  TEXT NOT NULL,
    pipeline  TEXT NOT NULL,
    stage     TEXT NOT NULL CHECK (stage <> ''),
    run       INTEGER,
    upstream  TEXT
);
INSERT INTO perdure_lanes (no, queue, category, pipeline, stage, run, upstream)
SELECT no, queue, category, pipeline, stage, run, upstream FROM perdure_old_lanes;
DELETE FROM sqlite_sequence WHERE name = 'perdure_lanes';
INSERT INTO sqlite_sequence (name, seq)
SELECT 'perdure_lanes', seq FROM sqlite_sequence WHERE name = 'perdure_old_lanes';
DROP TABLE perdure_old_lanes;
CREATE UNIQUE INDEX perdure_lanes_name
    ON perdure_lanes (pipeline, stage, queue, category, coalesce(run, 0));
CREATE INDEX perdure_lanes_run ON perdure_lanes (run) WHERE run IS NOT NULL;
CREATE INDEX perdure_lanes_upstream ON perdure_lanes (upstream) WHERE upstream IS NOT NULL;
"""
_ALTERED = "ALTER TABLE perdure_lanes ADD CHECK (stage <> '');\n"

_STEP = {SQLITE: _BOTH + _ANEW + _INDEX, POSTGRES: _BOTH + _ALTERED + _INDEX}


# As they were read before anybody has changed what is known.
REAL = {package: migrations(package) for package in (SQLITE, POSTGRES)}


def package_of(url: str) -> str:
    """The package of the store behind a URL."""
    return SQLITE if url.startswith("sqlite") else POSTGRES


def real(url: str) -> tuple[Migration, ...]:
    """The steps that this version knows."""
    return REAL[package_of(url)]


def step(url: str) -> str:
    """The step that only the later version knows, as people see it."""
    return f"{real(url)[-1].number + 1:04d}_colours"


def become(*, compat_min: int = CODE_VERSION, more: str = "", through: int | None = None) -> None:
    """Let this process be of the later version from now on.

    The step lets code run from ``compat_min`` on, which is the version before it, and has ``more`` statements. With
    ``through`` only that many of all steps are known.
    """

    def found(package: str, folder: str) -> dict[str, str]:
        name = f"{REAL[package][-1].number + 1:04d}_colours"
        sql = f"-- compat_min: {compat_min}\n{_STEP[package]}{more}"
        return dict([*texts(package, folder).items(), (name, sql)][:through])

    module.texts, module.CODE_VERSION = found, CODE_LATER


@contextmanager
def later(**options: Any) -> Iterator[None]:
    """As `become`, within the block."""
    before = module.texts, module.CODE_VERSION
    become(**options)
    try:
        yield
    finally:
        module.texts, module.CODE_VERSION = before
