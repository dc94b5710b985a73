"""The URLs of stores: what they name, and what is never shown of them."""

import pytest

from perdure.model.errors import ConfigError, StoreUnavailable
from perdure.stores.urls import settled_url, shown_url, sqlite_path

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


@pytest.mark.parametrize(
    ("url", "settled"),
    [
        ("sqlite:///work.db", "sqlite:///{here}/work.db"),
        ("sqlite:///./file:odd", "sqlite:///{here}/file:odd"),
        ("sqlite:///../work.db", "sqlite:///{here}/../work.db"),
        ("sqlite:////var/lib/work.db", "sqlite:////var/lib/work.db"),
        ("postgresql://a:b@host/c", "postgresql://a:b@host/c"),
    ],
)
def test_a_settled_url_names_the_same_store_from_everywhere(url, settled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert settled_url(url) == settled.format(here=tmp_path)
    assert settled_url(settled_url(url)) == settled_url(url)


def test_where_the_folder_is_gone_a_relative_path_is_refused(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StoreUnavailable, match="write an absolute path"):
        settled_url("sqlite:///work.db")
    assert settled_url("sqlite:////work.db") == "sqlite:////work.db"
