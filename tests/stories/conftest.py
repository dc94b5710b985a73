"""One story per test, in a folder of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stories.kit import Story, played


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with played(tmp_path) as one:
        yield one
