"""What a data set is written to: JSON lines for people and diffs, Parquet for training. Dead samples are in neither."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pyarrow as pa
from examples.datasets.app import FILES, Row
from pyarrow.parquet import ParquetWriter

from perdure import Run

ROWS_PER_GROUP = 2_000  # as many are in memory at once
COLUMNS = {str: pa.string(), int: pa.int32(), float: pa.float64()}
SCHEMA = pa.schema(
    [pa.field(name, COLUMNS[kind], False) for name, kind in Row.__annotations__.items()]
)


def write_files(run: Run, name: str) -> dict[Path, int]:
    """Write what has succeeded in a run to both files, in the order of the source; how many rows each has.

    A file is whole, or as it was before. After a re-drive, call it again.
    """
    folder = FILES / "datasets"
    folder.mkdir(parents=True, exist_ok=True)
    jsonl, parquet = folder / f"{name}.jsonl", folder / f"{name}.parquet"
    schema = SCHEMA.with_metadata({"dataset": name, "run": run.id})
    rows = (one.value for one in run.results(failed=False))
    count = 0
    with (
        _replaced(jsonl) as new_jsonl,
        _replaced(parquet) as new_parquet,
        new_jsonl.open("w", encoding="utf-8") as lines,
        ParquetWriter(new_parquet, schema, compression="zstd") as table,
    ):
        while group := list(islice(rows, ROWS_PER_GROUP)):
            lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in group)
            table.write_table(pa.Table.from_pylist(group, schema))
            count += len(group)
    return {jsonl: count, parquet: count}


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """A file to be written; it takes its place when the block has ended well."""
    part = path.with_name(f"{path.name}.part")
    yield part
    part.replace(path)
