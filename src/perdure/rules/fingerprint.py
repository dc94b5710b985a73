"""Which failures are alike: kind, stage and the message without what differs from item to item.

Numbers, ids, addresses, quoted texts and the like become placeholders, so that ten thousand dead letters fall
into the few groups that a person has to look at. What is left is hashed: a fingerprint is short, can be stored and
asked for, and says nothing about the message.
"""

import hashlib
import re

from perdure.model.kinds import Kind

_CHARS_MAX = 400  # what tells messages apart stands near their beginning; the end is data

# What is quoted tells failures apart when it is the name of something: a field, a type, a missing key.
_NAME = r"[A-Za-z_][A-Za-z_]{0,39}"

# In this order: what stands later may match within what stands earlier.
_PLACEHOLDERS = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", "<id>"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>)\]]+", "<url>"),
        (r"[\w.+-]+@[\w-]+\.[\w.-]+", "<address>"),
        (r"(?<![\w/])(?:/[\w.@+-]+){2,}/?", "<path>"),
        (
            rf"(?<!\w)'(?!{_NAME}')[^']*'(?!\w)|\"(?!{_NAME}\")[^\"]*\"|`(?!{_NAME}`)[^`]*`|“[^”]*”",
            "<text>",
        ),
        (r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{0,4}", "<host>"),
        (
            r"\b[\w-]+\.(?:pdf|json|jsonl|csv|txt|png|jpe?g|xml|html?|docx?|xlsx?|parquet|md)\b",
            "<file>",
        ),
        (
            r"\b(?:org|req|msg|resp|chatcmpl|run|asst|thread|proj|user|batch|file|call|toolu)[-_][A-Za-z0-9]{3,}\b",
            "<id>",
        ),
        (r"\b0x[0-9a-fA-F]+\b", "<number>"),
        (r"\b(?=[\w-]*\d)(?=[\w-]*[a-zA-Z])[\w-]{12,}\b", "<id>"),
        (r"[-+]?\d[\d.,_]*", "<number>"),
    )
)
_SPACES = re.compile(r"\s+")


def normalise(message: str) -> str:
    """A message without what differs from item to item."""
    text = message[: 4 * _CHARS_MAX]
    for pattern, word in _PLACEHOLDERS:
        text = pattern.sub(word, text)
    return _SPACES.sub(" ", text).strip().lower()[:_CHARS_MAX]


def fingerprint(kind: Kind, stage: str, message: str) -> str:
    """Sixteen hexadecimal digits that failures share when they are alike."""
    seen = "\n".join((kind.value, stage, normalise(message)))
    return hashlib.sha256(seen.encode("utf-8", "surrogatepass")).hexdigest()[:16]
