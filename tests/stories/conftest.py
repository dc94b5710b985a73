"""One story per test, in a folder of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stories.kit import Story, played


@pytest.fixture
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    """On a file of its own; a test marked `on_both` is also played on a database of its own."""
    on_postgres = getattr(request, "param", "sqlite") == "postgres"
    url = request.getfixturevalue("furnished") if on_postgres else None
    with played(tmp_path, url) as one:
        yield one
