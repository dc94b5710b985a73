"""The URLs of stores: what they name, and what is never shown of them."""

import pytest

from perdure.model.errors import ConfigError
from perdure.stores.urls import shown_url, sqlite_path

SHOWN = {
    "sqlite:///work.db": "sqlite:///work.db",
    "sqlite:////var/a:b@c.db": "sqlite:////var/a:b@c.db",
    "postgresql://there/x": "postgresql://there/x",
    "postgresql://ann@there/x": "postgresql://ann@there/x",
    "postgresql://ann:SECRET@there:5432/x": "postgresql://ann:***@there:5432/x",
    "postgres://ann:SECRET@there/x": "postgres://ann:***@there/x",
    "postgresql://ann:SE:CRET@there/x": "postgresql://ann:***@there/x",
    "postgresql://ann:SE@CRET@there/x": "postgresql://ann:***@there/x",
    "postgresql://ann:SE/CRET@there/x": "postgresql://ann:***@there/x",
    "postgresql://ann:SE%40CRET@there/x": "postgresql://ann:***@there/x",
    "postgresql://:SECRET@there/x": "postgresql://:***@there/x",
    "postgresql://there/x?password=SECRET": "postgresql://there/x?password=***",
    "postgresql://there/x?user=a&password=SECRET&port=1": (
        "postgresql://there/x?user=a&password=***&port=1"
    ),
    "postgresql://there/x?sslpassword=SECRET": "postgresql://there/x?sslpassword=***",
    "mysql://ann:SECRET@there/x": "mysql://ann:***@there/x",
    "redis://:SECRET@there": "redis://:***@there",
}


@pytest.mark.parametrize(("url", "shown"), SHOWN.items())
def test_a_url_is_shown_without_its_password(url, shown):
    assert shown_url(url) == shown
    assert "SE" not in shown_url(url)
    assert "CRET" not in shown_url(url)


@pytest.mark.parametrize(
    "url", ["mysql://ann:SECRET@there/x", "//ann:SECRET@there", "ann:SECRET@x"]
)
def test_what_is_refused_is_named_without_its_password(url):
    with pytest.raises(ConfigError) as caught:
        sqlite_path(url)
    assert repr(shown_url(url)) in str(caught.value)
    assert "SECRET" not in str(caught.value)
