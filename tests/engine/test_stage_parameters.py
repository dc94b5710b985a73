"""Typed payloads: what the first parameter is annotated with is what the stage is called with."""

import functools
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from perdure.engine.enqueue import new_job
from perdure.engine.ids import Ids
from perdure.engine.payloads import admit, decode
from perdure.engine.stage_parameters import ItemMisfit, ItemType
from perdure.engine.stages import LaidPipeline, Stage
from perdure.model.errors import PayloadRefused
from perdure.testing import VirtualClock
from tests.engine.kit import PLAIN

if TYPE_CHECKING:
    from decimal import Decimal


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Node(msgspec.Struct):
    name: str
    children: list["Node"] = []


@dataclass
class Line2:
    amount: float
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError("an amount is not negative")


class Row(TypedDict):
    id: int
    line: Line2


class Colour(Enum):
    RED = "red"


class Inner(pydantic.BaseModel):
    n: int
    at: datetime | None = None


class Model(pydantic.BaseModel):
    inner: Inner
    many: list[Inner] = []

    @pydantic.field_validator("many")
    @classmethod
    def few(cls, many: list[Inner]) -> list[Inner]:
        if len(many) > 2:
            raise ValueError("more than two")
        return many


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime


@dataclass
class Holder:
    models: list[Model]


def taking(annotation: Any):
    def call(item):
        return item

    call.__annotations__["item"] = annotation
    return call


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FITTING = [
    (int, "1", 1),
    (float, "1", 1.0),
    (str, '"a"', "a"),
    (bool, "true", True),
    (None, "null", None),
    (list, "[1]", [1]),
    (dict, '{"a":1}', {"a": 1}),
    (list[int], "[1,2]", [1, 2]),
    (dict[str, list[int]], '{"a":[1]}', {"a": [1]}),
    (set[int], "[1,1]", {1}),
    (tuple[int, str], '[1,"a"]', (1, "a")),
    (int | None, "null", None),
    (Literal["a", "b"], '"a"', "a"),
    (Annotated[int, msgspec.Meta(ge=0)], "3", 3),
    (Colour, '"red"', Colour.RED),
    (datetime, '"2026-01-01T12:00:00Z"', NOON),
    (Point, '{"x":1}', Point(1)),
    (list[Point], '[{"x":1,"y":2}]', [Point(1, 2)]),
    (Node, '{"name":"a","children":[{"name":"b"}]}', Node("a", [Node("b")])),
    (Line2, '{"amount":1}', Line2(1.0)),
    (Row, '{"id":1,"line":{"amount":2}}', {"id": 1, "line": Line2(2.0)}),
    (Inner, '{"n":1}', Inner(n=1)),
    (Model | None, '{"inner":{"n":1}}', Model(inner=Inner(n=1))),
    (dict[str, Inner], '{"a":{"n":2}}', {"a": Inner(n=2)}),
    (Strict, '{"at":"2026-01-01T12:00:00Z"}', Strict(at=NOON)),
    (Holder, '{"models":[{"inner":{"n":1}}]}', Holder([Model(inner=Inner(n=1))])),
    (Any, "[1]", [1]),
    (object, "[1]", [1]),
    (dict[str, object], '{"a":[1]}', {"a": [1]}),
]


@pytest.mark.parametrize(("kind", "text", "value"), FITTING, ids=str)
def test_a_value_that_fits_becomes_an_object_of_its_type(kind, text, value):
    found = ItemType(taking(kind)).read(text)
    assert found == value
    assert type(found) is type(value)


MISFITS = [
    (int, '"a"', "$", "Expected `int`, got `str`"),
    (list[int], '[1,"a"]', "$[1]", "Expected `int`, got `str`"),
    (dict[str, int], '{"a":null}', "$[...]", "Expected `int`, got `null`"),
    (dict[int, int], '{"a":1}', "$", "Expected `int`, got `str`"),
    (Literal["a"], '"b"', "$", "Invalid enum value 'b'"),
    (Annotated[int, msgspec.Meta(ge=0)], "-1", "$", "Expected `int` >= 0"),
    (Point, "{}", "$", "Object missing required field `x`"),
    (Node, '{"name":"a","children":[{"name":5}]}', "$.children[0].name", "Expected `str`"),
    (Line2, '{"amount":-1}', "$", "an amount is not negative"),
    (Row, '{"id":1,"line":{"amount":"x"}}', "$.line.amount", "Expected `float`, got `str`"),
    (Inner, '{"n":"x"}', "$.n", "Input should be a valid integer"),
    (Inner, "5", "$", "Input should be an object"),
    (Model, '{"inner":{"n":1},"many":[{"n":1},{}]}', "$.many[1].n", "Field required"),
    (
        Model,
        '{"inner":{"n":1},"many":[{"n":1},{"n":1},{"n":1}]}',
        "$.many",
        "Value error, more than",
    ),
    (Holder, '{"models":[{"inner":{"n":"x"}}]}', "$.models[0].inner.n", "Input should be a valid"),
    (list[Inner], '[{"n":1},{"n":[]}]', "$[1].n", "Input should be a valid integer"),
]


@pytest.mark.parametrize(("kind", "text", "path", "rule"), MISFITS, ids=str)
def test_a_value_that_does_not_fit_is_named_by_path_and_rule(kind, text, path, rule):
    shape = ItemType(taking(kind))
    for once in (shape.read, shape.check):
        with pytest.raises(ItemMisfit) as caught:
            once(text)
        assert caught.value.path == path
        assert caught.value.rule.startswith(rule)


def test_what_a_model_was_given_is_not_repeated_in_its_complaint():
    with pytest.raises(ItemMisfit) as caught:
        ItemType(taking(Inner)).read('{"n":"sk-very-secret"}')
    assert "secret" not in caught.value.rule


# -- annotations -------------------------------------------------------------------------


def forward(item: "Later"):
    return item


AHEAD = ItemType(forward)  # made before the class is


class Later(msgspec.Struct):
    n: int


def test_a_class_that_is_defined_further_down_is_found_when_the_first_item_comes():
    assert AHEAD.read('{"n":1}') == Later(1)
    with pytest.raises(ItemMisfit):
        AHEAD.read("{}")


def other_is_unresolvable(item: Point, context: "Decimal") -> "Nowhere":  # noqa: F821
    return item


def test_only_the_first_annotation_counts():
    assert ItemType(other_is_unresolvable).read('{"x":1}') == Point(1)


def unresolvable(item: "Decimal"):
    return item


def untagged(item: Point | Node):
    return item


def iterable(item: Iterable[int]):
    return item


def own_class(item: ItemType):
    return item


def nonsense(item: "1 +"):  # noqa: F722
    return item


@pytest.mark.parametrize("call", [unresolvable, untagged, iterable, own_class, nonsense])
def test_what_cannot_be_honoured_is_said_once_and_the_item_stays_plain(call, caplog):
    with caplog.at_level(logging.WARNING, "perdure"):
        shape = ItemType(call)
        for _ in range(2):
            shape.check("[1]")
            assert shape.read("[1]") == [1]
    (warning,) = caplog.records
    assert call.__name__ in warning.getMessage()


def bare(item):
    return item


def nothing():
    return None


@pytest.mark.parametrize("call", [bare, nothing, lambda item: item, taking(Any)])
def test_what_says_nothing_is_left_plain_in_silence(call, caplog):
    assert ItemType(call).read('{"a":1}') == {"a": 1}
    assert caplog.records == []


class Called:
    def __call__(self, item: int) -> int:
        return item

    def method(self, item: int) -> int:
        return item

    @classmethod
    def of(cls, item: int) -> int:
        return item


def two(scale: str, item: int) -> int:
    return item


def wrapped(call):
    @functools.wraps(call)
    def outer(*arguments):
        return call(*arguments)

    return outer


def plain_int(item: int) -> int:
    return item


@pytest.mark.parametrize(
    "call",
    [
        Called(), Called().method, Called.of, functools.partial(two, "m"),
        functools.partial(functools.partial(two, "m")), wrapped(plain_int),
    ],
)  # fmt: skip
def test_the_annotation_is_found_behind_anything_that_can_be_called(call):
    assert ItemType(call).read("5") == 5
    with pytest.raises(ItemMisfit):
        ItemType(call).read('"5"')


# -- the door ----------------------------------------------------------------------------


def line_of(*kinds: Any) -> LaidPipeline:
    stages = [Stage(f"s{at}", taking(kind), PLAIN, 60.0) for at, kind in enumerate(kinds)]
    return LaidPipeline(
        "p", "q", "c", tuple(stages), {one.name: at for at, one in enumerate(stages)}
    )


def enqueued(item: Any, *kinds: Any) -> str:
    return new_job(Ids(VirtualClock(), Random(1)), line_of(*kinds), item).payload_json


ITEMS = [
    (Point(1, 2), Point),
    ({"x": 1}, Point),
    (Line2(2.0), Line2),
    ({"amount": 2}, Line2),
    (Model(inner=Inner(n=1, at=NOON)), Model),
    ({"inner": {"n": 1}}, Model),
    ([Inner(n=1), {"n": 2}], list[Inner]),
    (Holder([Model(inner=Inner(n=1))]), Holder),
    ({"id": 1, "line": Line2(1.0)}, Row),
    (5, int),
    (5, float),
]


@pytest.mark.parametrize(("item", "kind"), ITEMS, ids=str)
def test_an_item_passes_as_an_object_of_its_type_or_as_plain_values(item, kind):
    assert enqueued(item, kind) == admit(item, what="x", bytes_max=10_000)


def test_an_item_is_stored_as_it_came_in_and_not_as_its_type_would_have_it():
    assert decode(enqueued({"x": 1, "more": True}, Point)) == {"x": 1, "more": True}


@pytest.mark.parametrize(
    ("item", "kind", "words"),
    [
        ({"x": "a"}, Point, ["$.x", "Expected `int`, got `str`", "stage 's0'"]),
        (Line2, Line2, ["type"]),
        ([{"n": 1}, {"n": None}], list[Inner], ["$[1].n", "valid integer"]),
        (Point(1), Line2, ["amount"]),
        ("5", int, ["Expected `int`"]),
    ],
)
def test_an_item_that_does_not_fit_is_refused_at_the_door(item, kind, words):
    with pytest.raises(PayloadRefused) as caught:
        enqueued(item, kind, Any)
    assert all(word in str(caught.value) for word in words)


def test_only_the_first_stage_s_type_is_asked_at_the_door():
    assert enqueued({"x": 1}, Any, Point) == enqueued({"x": 1}, Point, int) == '{"x":1}'


def test_a_model_that_holds_what_json_cannot_is_refused_by_the_name_of_the_field():
    class Wide(pydantic.BaseModel):
        n: float

    with pytest.raises(PayloadRefused, match=r"the item\.n is inf"):
        enqueued(Wide(n=float("inf")), Any)
    with pytest.raises(PayloadRefused, match="the item is of type ModelMetaclass"):
        enqueued(Wide, Any)
