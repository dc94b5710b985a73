"""A stage whose checks need an extra that is not installed is refused when it is declared."""

import sys

import msgspec
import pytest

import perdure.checks
from perdure import App, ConfigError
from perdure.checks import check, fits, json_of, read_json

SCHEMA = {"type": "object"}


class Invoice(msgspec.Struct):
    total: float


def helped(text, reason):
    return read_json(text, Invoice, finish_reason=reason)


def deeply(text):
    return [helped(text, "stop") for _ in range(2)]


def mends(item):
    return read_json(item, Invoice, finish_reason="stop").value


def mends_any(item):
    return json_of(item, finish_reason=item)


async def mends_and_checks(item):
    return check(item, Invoice, finish_reason=item, repair=True)


def mends_by_a_module(item):
    return perdure.checks.read_json(item, finish_reason=item)


def mends_what_it_imports(item):
    from perdure.checks import check as checked

    return checked(item, Invoice, finish_reason=item)


def mends_through_others(item):
    return deeply(item)


def mends_inside(item):
    def again():
        return json_of(item, finish_reason=item)

    return again()


MENDING = [
    mends, mends_any, mends_and_checks, mends_by_a_module, mends_what_it_imports, mends_through_others,
    mends_inside,
]  # fmt: skip


def reads(item):
    return read_json(item, Invoice).value


def reads_a_cut_one(item):
    return read_json(item, Invoice, finish_reason=None).value


def mends_nothing(item):
    return check(item, Invoice, finish_reason=item, repair=False)


def asks_for_it(item):
    return check(item, Invoice, finish_reason=item, repair=item == "please")


def has_options(item):
    options = {"repair": False}
    return json_of(item, finish_reason=item, **options)


def fits_a_type(item):
    return fits(item, Invoice)


def has_a_check_of_its_own(item, check=lambda *_, **__: None):
    return check(item, SCHEMA, finish_reason=item)


NEITHER = [
    reads,
    reads_a_cut_one,
    mends_nothing,
    asks_for_it,
    has_options,
    fits_a_type,
    has_a_check_of_its_own,
    len,
]


def checks_a_schema(item):
    return check(item, SCHEMA)


def reads_by_a_schema(item):
    return read_json(item, against={"type": "array"})


def fits_a_schema(item):
    return fits(item, perdure.checks.SCHEMA_OF_TESTS)


FITTING = [checks_a_schema, reads_by_a_schema, fits_a_schema]


@pytest.fixture
def app(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    yield app
    app.close()


@pytest.fixture
def bare(monkeypatch):
    """An interpreter in which the extra is not installed."""
    for name in ("json_repair", "jsonschema_rs"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(perdure.checks, "SCHEMA_OF_TESTS", SCHEMA, raising=False)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("call", MENDING, ids=lambda one: one.__name__)
def test_a_stage_that_mends_is_refused_where_it_cannot_be_done(app, call):
    with pytest.raises(ConfigError) as caught:
        app.stage(name="ask")(call)
    told = str(caught.value)
    assert told.startswith("stage 'ask' calls ")
    assert told.endswith(
        "which mends JSON with json-repair, and that is not installed: "
        'pip install "perdure[checks]", or pass repair=False'
    )


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("call", FITTING, ids=lambda one: one.__name__)
def test_a_stage_with_a_schema_is_refused_where_it_cannot_be_checked(app, call):
    with pytest.raises(ConfigError) as caught:
        app.stage(name="ask")(call)
    assert str(caught.value).endswith(
        "with a JSON Schema, which needs jsonschema-rs, and that is not installed: "
        'pip install "perdure[checks]"'
    )


@pytest.mark.usefixtures("bare")
def test_a_stage_that_is_refused_is_in_no_pipeline(app):
    with pytest.raises(ConfigError, match="json-repair"):
        app.stage(mends)
    with pytest.raises(ConfigError, match="is not a stage"):
        app.pipeline("p", mends)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("call", NEITHER, ids=lambda one: one.__name__)
def test_a_stage_that_needs_neither_is_declared_without_them(app, call):
    assert app.stage(name="ask")(call) is call


@pytest.mark.parametrize("call", [*MENDING, *FITTING], ids=lambda one: one.__name__)
def test_with_the_extra_every_stage_is_declared(app, call):
    assert app.stage(name="ask")(call) is call


@pytest.mark.usefixtures("bare")
def test_a_stage_whose_source_is_nowhere_is_left_to_its_first_item(app):
    names = {"json_of": json_of}
    exec("def ask(item):\n    return json_of(item, finish_reason='stop')", names)
    assert app.stage(names["ask"]) is names["ask"]
    with pytest.raises(ConfigError, match=r"perdure\[checks\]"):
        names["ask"]("{}")
