"""Checking against schemas, types and models: exact places and rules, and nothing of the output."""

import enum
import json
import pickle
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from perdure.checks import OutputInvalid, OutputRefused, OutputTruncated, check, fits, read_json
from perdure.checks.output import contract_of
from perdure.model.errors import ConfigError

SECRET = "sk-ant-SECRET"

SCHEMA = {
    "type": "object",
    "properties": {
        "total": {"type": "number", "minimum": 0},
        "items": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"unit price": {"type": ["number", "null"]}, "kind": {"enum": ["a", "b"]}},
                "required": ["kind"],
                "additionalProperties": False,
            },
        },
        "day": {"type": "string", "format": "date"},
        "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 20},
        "by": {"additionalProperties": {"type": "integer"}},
        "pet": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "names": {"propertyNames": {"maxLength": 3}},
        "even": {"multipleOf": 2},
    },
    "required": ["total"],
}  # fmt: skip

FAULTS_BY_SCHEMA = [
    ({}, "$", "required total"),
    ([], "$", "type object"),
    ({"total": SECRET}, "$.total", "type number"),
    ({"total": -1}, "$.total", "minimum 0"),
    ({"total": 1, "items": []}, "$.items", "minItems 1"),
    ({"total": 1, "items": [{"kind": "a"}, {}]}, "$.items[1]", "required kind"),
    ({"total": 1, "items": [{"kind": SECRET}]}, "$.items[0].kind", "enum"),
    ({"total": 1, "items": [{"kind": "a", SECRET: 1}]}, "$.items[0]", "additionalProperties"),
    ({"total": 1, "items": [{"kind": "a", "unit price": SECRET}]}, '$.items[0]["unit price"]', "type null or number"),
    ({"total": 1, "day": SECRET}, "$.day", "format date"),
    ({"total": 1, "code": SECRET}, "$.code", "pattern"),
    ({"total": 1, "code": "secret" * 9}, "$.code", "maxLength 20"),
    ({"total": 1, "by": {SECRET: "x"}}, "$.by[...]", "type integer"),
    ({"total": 1, "pet": [SECRET]}, "$.pet", "anyOf"),
    ({"total": 1, "names": {SECRET: 1}}, "$.names", "propertyNames"),
    ({"total": 1, "even": 3}, "$.even", "multipleOf 2"),
    ({"total": [float("inf")]}, "$.total[0]", "the number is not finite"),
    ({"total": 1, SECRET: {"total": 2**64}}, "$[...].total", "the number has more than 64 bits"),
    ({"total": 1, 5: 1}, "$", "a name in an object is no text"),
    ({"total": (1,)}, "$.total", "it is no JSON value"),
]  # fmt: skip


def refused(value: Any, against: Any) -> OutputInvalid:
    with pytest.raises(OutputInvalid) as caught:
        fits(value, against)
    error = caught.value
    assert SECRET not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert str(error).endswith(f": {error.path}: {error.rule}")
    return error


@pytest.mark.parametrize(("value", "path", "rule"), FAULTS_BY_SCHEMA, ids=str)
def test_a_schema_says_where_and_by_which_keyword(value, path, rule):
    error = refused(value, SCHEMA)
    assert (error.path, error.rule) == (path, rule)


def test_what_fits_a_schema_comes_back_as_it_is():
    value = {"total": 3, "items": [{"kind": "b", "unit price": None}], "day": "2026-01-31"}
    assert fits(value, SCHEMA) is value
    assert check(json.dumps(value), SCHEMA, finish_reason="stop") == value


def test_a_schema_is_compiled_once_and_seen_anew_when_it_is_changed():
    schema = {"type": "integer"}
    assert contract_of(schema) is contract_of({"type": "integer"})
    schema["type"] = "string"
    assert fits("x", schema) == "x"


BAD_SCHEMAS = [
    ({"type": "strin"}, "cannot be used at type: "),
    (
        {"properties": {"a": {"anyOf": [{"type": "objekt"}]}}},
        'at properties/a/anyOf/0/type: "objekt" ',
    ),
    ({"pattern": "("}, "cannot be used at pattern: "),
    ({"$ref": "#/nope"}, "cannot be used: "),
    ({"$ref": "http://127.0.0.1:9/x"}, "cannot be used"),
    ({"const": 1j}, "is no JSON"),
]


@pytest.mark.parametrize(("schema", "words"), BAD_SCHEMAS, ids=str)
def test_a_schema_that_is_none_or_lies_elsewhere_is_a_mistake_of_ours(schema, words):
    with pytest.raises(ConfigError, match=words):
        fits(1, schema)


class Level(enum.Enum):
    LOW = "low"


class Line(msgspec.Struct, forbid_unknown_fields=True):
    price: Annotated[int, msgspec.Meta(ge=0)]
    kind: Literal["a", "b"] = "a"
    level: Level = Level.LOW


class Order(msgspec.Struct, rename="camel"):
    order_lines: list[Line]
    by_name: dict[str, int] = {}
    by_number: dict[int, int] = {}
    note: Annotated[str, msgspec.Meta(max_length=5)] = ""

    def __post_init__(self) -> None:
        if self.note == "bad":
            raise ValueError(f"{SECRET} - at `$.{SECRET}`")


@dataclass
class Point:
    x: int
    y: float = 0.0


class Place(TypedDict):
    name: str
    at: Point


FAULTS_BY_TYPE = [
    ({}, Order, "$", "Object missing required field `orderLines`"),
    ([], Order, "$", "Expected `object`, got `array`"),
    ({"orderLines": [{"price": 1}, {"price": SECRET}]}, Order, "$.orderLines[1].price", "Expected `int`, got `str`"),
    ({"orderLines": [{"price": -1}]}, Order, "$.orderLines[0].price", "Expected `int` >= 0"),
    ({"orderLines": [{"price": 1, "kind": SECRET}]}, Order, "$.orderLines[0].kind", "Invalid enum value"),
    ({"orderLines": [{"price": 1, "level": SECRET}]}, Order, "$.orderLines[0].level", "Invalid enum value"),
    ({"orderLines": [{"price": 1, SECRET: 1}]}, Order, "$.orderLines[0]", "Object contains unknown field"),
    ({"orderLines": [], "byName": {SECRET: SECRET}}, Order, "$.byName[...]", "Expected `int`, got `str`"),
    ({"orderLines": [], "byNumber": {SECRET: 1}}, Order, "$.byNumber", "Expected `int`, got `str`, of a name in an object"),
    ({"orderLines": [], "note": SECRET}, Order, "$.note", "Expected `str` of length <= 5"),
    ({"orderLines": [], "note": "bad"}, Order, "$", "a rule of the type's own"),
    ({"x": "1"}, Point, "$.x", "Expected `int`, got `str`"),
    ({"name": "a", "at": {}}, Place, "$.at", "Object missing required field `x`"),
    ([1, SECRET], list[int], "$[1]", "Expected `int`, got `str`"),
    (SECRET, int, "$", "Expected `int`, got `str`"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "kind", "path", "rule"), FAULTS_BY_TYPE, ids=str)
def test_a_type_says_where_and_by_which_rule(value, kind, path, rule):
    error = refused(value, kind)
    assert (error.path, error.rule) == (path, rule)


def test_a_type_gives_an_object_of_its_own():
    text = '```json\n{"orderLines": [{"price": 3, "kind": "b"}], "byNumber": {"7": 1},}\n```'
    order = check(text, Order)
    assert order == Order([Line(3, "b")], by_number={7: 1})
    assert fits({"x": 1, "y": 2}, Point) == Point(1, 2.0)
    assert check('{"name": "n", "at": {"x": 1}}', Place) == {"name": "n", "at": Point(1)}
    assert fits("text", str) == "text"
    assert check([1, 2], tuple[int, int]) == (1, 2)
    assert fits({"a": [1]}, Any) == {"a": [1]}
    assert fits([1, {"a": 2}], list[object]) == [1, {"a": 2}]
    assert fits([1], Annotated[list[int], ["not hashable"]]) == [1]


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = pydantic.Field(gt=0)


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    age: int


class Owner(pydantic.BaseModel, extra="forbid"):
    number: int = pydantic.Field(ge=1, alias="ownerNumber")
    by_name: dict[str, int] = {}
    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")] | None = None
    either: Cat | int | None = None
    level: Level | None = None
    code: str = pydantic.Field("xxx", min_length=3)

    @pydantic.field_validator("code")
    @classmethod
    def not_bad(cls, code: str) -> str:
        if code == "bad":
            raise ValueError(SECRET)
        return code


@pydantic.dataclasses.dataclass
class Checked:
    n: int = pydantic.Field(gt=5)


class Kennel(msgspec.Struct):
    dogs: list[Dog]


@dataclass
class Home:
    cat: Cat


class Opaque:
    """Nothing that a schema could say."""


class Untold(pydantic.BaseModel, arbitrary_types_allowed=True):
    opaque: Annotated[Opaque, pydantic.PlainValidator(int)]
    n: int = 0


class Shapeless(pydantic.BaseModel, arbitrary_types_allowed=True):
    opaque: Opaque | None = None
    n: int = 0


class Unfinished(pydantic.BaseModel):
    n: "DefinedNowhere"  # noqa: F821


class Adapter:
    """Like pydantic's, with a defect of its own."""

    def json_schema(self, **options: Any) -> dict[str, Any]:
        return {}

    def validate_json(self, text: bytes) -> Any:
        raise ValueError("a defect")


FAULTS_BY_MODEL = [
    ({}, Owner, "$.ownerNumber", "missing"),
    (5, Owner, "$", "model_type"),
    ({"ownerNumber": 0}, Owner, "$.ownerNumber", "greater_than_equal 1"),
    ({"ownerNumber": 1, SECRET: 1}, Owner, "$[...]", "extra_forbidden"),
    ({"ownerNumber": 1, "by_name": {SECRET: SECRET}}, Owner, "$.by_name[...]", "int_parsing"),
    ({"ownerNumber": 1, "pet": {"kind": "cat", "lives": 0}}, Owner, "$.pet.cat.lives", "greater_than 0"),
    ({"ownerNumber": 1, "pet": {"kind": SECRET}}, Owner, "$.pet", "union_tag_invalid"),
    ({"ownerNumber": 1, "either": {"kind": "cat", "lives": 0}}, Owner, "$.either.Cat.lives", "greater_than 0"),
    ({"ownerNumber": 1, "level": SECRET}, Owner, "$.level", "enum"),
    ({"ownerNumber": 1, "code": "a"}, Owner, "$.code", "string_too_short 3"),
    ({"ownerNumber": 1, "code": "bad"}, Owner, "$.code", "value_error"),
    ([{"kind": "dog"}], list[Dog], "$[0].age", "missing"),
    ({"kind": SECRET}, Cat | Dog, "$.Cat.kind", "literal_error"),
    ({"n": 1}, Checked, "$.n", "greater_than 5"),
    ({"n": SECRET}, pydantic.TypeAdapter(Checked), "$.n", "int_parsing"),
    ([SECRET], pydantic.TypeAdapter(list[int]), "$[0]", "int_parsing"),
    ({"dogs": [{"kind": "dog", "age": 1}, {"kind": "dog", "age": SECRET}]}, Kennel, "$.dogs[1].age", "int_parsing"),
    ({"cat": {"kind": "cat", "lives": -1}}, Home, "$.cat.lives", "greater_than 0"),
    ({"opaque": 1, "n": SECRET}, Untold, "$.n", "int_parsing"),
    ({"n": SECRET}, Shapeless, "$[...]", "int_parsing"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "kind", "path", "rule"), FAULTS_BY_MODEL, ids=str)
def test_a_pydantic_model_says_where_and_by_which_rule(value, kind, path, rule):
    error = refused(value, kind)
    assert (error.path, error.rule) == (path, rule)


def test_a_pydantic_model_gives_an_object_of_its_own():
    assert check('So: {"kind": "dog", "age": 3}', Dog) == Dog(kind="dog", age=3)
    assert check('[{"kind": "dog", "age": 3}]', list[Dog]) == [Dog(kind="dog", age=3)]
    assert fits({"dogs": [{"kind": "dog", "age": 3}]}, Kennel) == Kennel([Dog(kind="dog", age=3)])
    assert fits({"n": 6}, Checked) == Checked(6)
    assert fits({"opaque": "5"}, Untold).opaque == 5


def test_a_bug_in_a_validator_is_not_blamed_on_the_model():
    class Buggy(pydantic.BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def broken(cls, n: int) -> int:
            return {}[n]

    with pytest.raises(KeyError):
        fits({"n": 1}, Buggy)
    with pytest.raises(ValueError, match="a defect"):
        fits({"n": 1}, Adapter())


NO_CONTRACTS = [
    None,
    "object",
    5,
    [int],
    (int,),
    Opaque,
    list[Opaque],
    Line | Order,
    "Line",
    Cat | Opaque,
    Unfinished,
]


@pytest.mark.parametrize("against", NO_CONTRACTS, ids=str)
def test_what_nothing_can_be_checked_against_is_a_mistake_of_ours(against):
    with pytest.raises(ConfigError):
        fits({}, against)
    with pytest.raises(ConfigError):
        check("{}", against)


def test_a_text_is_parsed_by_check_and_taken_as_it_is_by_fits():
    assert check('"x"', str) == "x"
    assert fits('"x"', str) == '"x"'


def test_parsed_values_are_judged_by_their_finish_reason_too():
    assert check({"x": 1}, Point, finish_reason="tool_use") == Point(1)
    with pytest.raises(OutputTruncated) as caught:
        check({"x": 1}, Point, finish_reason="max_tokens")
    assert caught.value.raw == '{"x":1}'
    with pytest.raises(OutputRefused):
        check({"x": 1}, Point, finish_reason="refusal")


def test_the_raw_output_is_kept_whole_as_it_came():
    text = f"Sure!\n```json\n{json.dumps({'x': SECRET})}\n```"
    for raw in (text, text.encode()):
        with pytest.raises(OutputInvalid) as caught:
            check(raw, Point)
        assert caught.value.raw == raw
    assert refused({"x": SECRET}, Point).raw == json.dumps({"x": SECRET}, separators=(",", ":"))
    assert refused({"x": object()}, Point).raw == ""


def test_what_was_done_to_the_text_is_told_with_the_value():
    parsed = read_json("{'x': 1}", Point, finish_reason="stop")
    assert (parsed.value, parsed.repaired, parsed.steps) == (Point(1), True, ("repair",))


def test_a_long_way_is_cut():
    deep: Any = SECRET
    for _ in range(60):
        deep = {"a_rather_long_name": deep}
    schema = {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"type": "object", "properties": {"a_rather_long_name": {"$ref": "#/$defs/a"}}}
        },
    }
    error = refused(deep, schema)
    assert len(error.path) == 300
    assert error.path.endswith("…")


@pytest.mark.parametrize("kind", [OutputInvalid, OutputTruncated, OutputRefused])
def test_the_errors_survive_a_way_through_another_process(kind):
    error = pickle.loads(pickle.dumps(kind("$.x", "type number", raw=SECRET)))
    assert (type(error), error.path, error.rule, error.raw) == (kind, "$.x", "type number", SECRET)
    assert error.args == (str(error),)


def test_without_jsonschema_rs_a_schema_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(ConfigError, match=r'pip install "perdure\[checks\]"'):
        fits(1, {"type": "integer", "title": "never compiled before"})


def test_a_model_without_pydantic_is_a_mistake_of_ours(monkeypatch):
    monkeypatch.delitem(sys.modules, "pydantic")
    with pytest.raises(ConfigError, match="pydantic is not loaded"):
        fits(1, type("Lone", (), {"__pydantic_validator__": None}))


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = (
        "import sys; from perdure.checks import check\n"
        "assert check('[1,]', list[int]) == [1]\n"
        "print({'json_repair', 'jsonschema_rs', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
