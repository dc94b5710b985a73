"""A corpus of values: those that must come out of every store as they went in, and those that the door refuses."""

from typing import Any

from perdure.model.limits import DEPTH_MAX, PAYLOAD_BYTES_MAX


def _nest(levels: int, wrap: Any) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = wrap(value)
    return value


class _Mute:
    """An object that does not even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


TEXTS: dict[str, str] = {
    "empty": "",
    "spaces": "  \t\n\r ",
    "emoji": "🎉 👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈",
    "four bytes": "𝕏 𐍈 𠜎",
    "right to left": "שלום עולם \u202eabc\u202c مرحبا",
    "composed and not": "é e\u0301 ﬁ Ａ",
    "non-characters": "\uffff \ufffe \ufdd0 \U0010ffff",
    "byte order mark": "\ufeffx",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x85",
    "separators": "a\u2028b\u2029c",
    "a whole surrogate pair, escaped": "\\ud83c\\udf89",
    "an escaped NUL": "\\u0000",
    "quotes": "' \" ` ´ '' \"\" \\' \\\"",
    "SQL": "'); DROP TABLE perdure_jobs; --",
    "JSON": '{"a": [1, null]}, "b": "\\n"}',
    "percent": "% %% %s %(name)s %d 100%",
    "braces": "{} {0} {name} {{",
    "parameters": ":name $1 ? @p ::text",
    "backslashes": "\\ \\\\ \\n \\. \\N C:\\new\\table",
    "like": "a_b%c\\%",
    "words that mean something": "NULL null None true NaN Infinity undefined",
    "numbers": "007 1e5 0x1F -0 1_000",
    "tags": "<script>alert(1)</script> &amp; ]]> <!--",
    "dollar quotes": "$$ $tag$ x $tag$",
}

PAYLOADS: dict[str, Any] = {
    **TEXTS,
    "null": None,
    "yes": True,
    "no": False,
    "zero": 0,
    "minus zero": -0.0,
    "the largest integer": 2**63 - 1,
    "the smallest integer": -(2**63),
    "an integer that a float would change": 2**53 + 1,
    "a large float": 1e308,
    "the largest float": 1.7976931348623157e308,
    "the smallest float": 5e-324,
    "a float that is never exact": 0.1 + 0.2,
    "a whole float": 1.0,
    "an empty list": [],
    "an empty object": {},
    "empty things in each other": [[], {}, "", {"": {"": [None]}}],
    "keys that look alike": {"a": 1, "A": 2, "a ": 3, "ａ": 4, "á": 5, "a\u0301": 6},
    "keys that look like numbers": {"1": 1, "01": 2, "1.0": 3, "-1": 4},
    "keys in no order": {"z": 1, "a": 2, "m": 3},
    "keys with all the texts": dict.fromkeys(TEXTS.values(), 1),
    "all the texts": list(TEXTS.values()),
    "lists as deep as it goes": _nest(DEPTH_MAX, lambda value: [value]),
    "objects as deep as it goes": _nest(DEPTH_MAX, lambda value: {"k": value}),
    "as large as it goes": "x" * (PAYLOAD_BYTES_MAX - 2),
    "as large as it goes, in four bytes each": "🎉" * (PAYLOAD_BYTES_MAX // 4 - 1),
}

REFUSED: dict[str, Any] = {
    "NUL": "a\x00b",
    "NUL in a key": {"a\x00b": 1},
    "NUL deep inside": {"a": [{"b": ["\x00"]}]},
    "the first half of a surrogate pair": "\ud83c",
    "the second half of a surrogate pair": "x\udf89",
    "half of a surrogate pair in a key": {"\ud800": 1},
    "not a number": float("nan"),
    "infinity": float("inf"),
    "minus infinity": [float("-inf")],
    "a very large integer": 10**400,
    "an integer just too large": 2**63,
    "an integer just too small": -(2**63) - 1,
    "lists too deep": _nest(DEPTH_MAX + 1, lambda value: [value]),
    "objects too deep": _nest(DEPTH_MAX + 1, lambda value: {"k": value}),
    "bytes": b"abc",
    "a bytearray": bytearray(b"abc"),
    "a set": {1, 2},
    "a frozen set": frozenset({1}),
    "a complex number": 1j,
    "a key that is a number": {1: "a"},
    "a key that is nothing": {None: "a"},
    "a key that is a tuple": {(1, 2): "a"},
    "a function": len,
    "a class": dict,
    "an object": object(),
    "an object that cannot be shown": _Mute(),
    "an object that cannot be shown, deep inside": {"a": [_Mute()]},
    "just too large": "x" * (PAYLOAD_BYTES_MAX - 1),
    "much too large": ["x" * 1000] * 2000,
}
