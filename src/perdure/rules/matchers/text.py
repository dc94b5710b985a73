"""Words, last: what a message says where nothing else says anything.

Wording changes without notice, so a pattern is asked only when no code, class or status knew an answer;
and, a little earlier, about a plain bad request, where many services tell the reason in prose alone.
"""

import re

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Found, message_of

_STATUS = re.compile(
    r"\b(?:http(?:/\d(?:\.\d)?)?(?: error)?|status(?:[ _]code)?|error code)[:= ]{1,3}([45]\d\d)\b"
)

_TOO_LARGE = re.compile(
    r"context (?:length|window)|maximum context|prompt is too long|input is too long|too many (?:input )?tokens"
    r"|token count[^.]{0,60}exceeds|exceeds? the (?:maximum|context|token)|request too large"
    r"|payload too large|reduce the length|too large for model"
)
_BILLING = re.compile(
    r"insufficient (?:credits?|balance|funds|quota)|credit balance|out of credits|exceeded your current quota"
    r"|(?:billing|spend(?:ing)?) (?:hard )?limit|billing (?:is )?(?:not enabled|details)|payment required"
)
_REFUSED = re.compile(
    r"content (?:management )?(?:policy|policies|filter)|safety system|violat\w{1,5} (?:our|the) [^.]{0,40}polic"
)

WORDS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (_TOO_LARGE, Kind.TOO_LARGE),
    (_BILLING, Kind.BILLING),
    (_REFUSED, Kind.CONTENT_REFUSED),
    (
        re.compile(
            r"out of memory|cannot allocate memory|no space left on device|too many open files"
        ),
        Kind.RESOURCE_EXHAUSTED,
    ),
    (re.compile(r"rate.?limit|too many requests|throttl(?:ed|ing)"), Kind.RATE_LIMITED),
    (re.compile(r"overloaded|(?:at|over) capacity|server (?:is )?(?:too )?busy"), Kind.OVERLOADED),
    (
        re.compile(
            r"api[ _]key[^.]{0,60}(?:must be set|not set|missing|required|not found|was provided)"
            r"|no api[ _]key|missing (?:(?:api[ _])?key|credentials)|credentials? (?:is|are|was|were)? ?not (?:set|found)"
        ),
        Kind.CONFIG_MISSING,
    ),
    (
        re.compile(r"(?:invalid|incorrect) api[ _]key|unauthori[sz]ed|authentication failed"),
        Kind.AUTH,
    ),
    (
        re.compile(
            r"connection refused|connection failed|name or service not known|name resolution"
            r"|nodename nor servname|no route to host|network is unreachable|failed to connect"
            r"|error trying to connect|dns error"
        ),
        Kind.NETWORK,
    ),
    (
        re.compile(
            r"connection (?:was )?(?:reset|aborted|closed|lost)|broken pipe|server disconnected"
            r"|peer closed|incomplete (?:chunked )?read|unexpected (?:eof|end of file)"
            r"|error decoding response body|connection error"
        ),
        Kind.AMBIGUOUS,
    ),
    (
        re.compile(
            r"timed out|deadline exceeded|timeout (?:was )?(?:exceeded|expired|reached)"
            r"|(?:read|request|operation) timeout"
        ),
        Kind.TIMEOUT,
    ),
    (
        re.compile(r"service (?:is )?(?:temporarily )?unavailable|bad gateway"),
        Kind.UPSTREAM_UNAVAILABLE,
    ),
    (re.compile(r"internal server error|internal error"), Kind.UPSTREAM_ERROR),
)


def status_in_words(evidence: Evidence) -> int | None:
    """The HTTP status that a message names."""
    found = _STATUS.search(message_of(evidence))
    return int(found[1]) if found else None


def words(evidence: Evidence) -> Found | None:
    """What the message says."""
    text = message_of(evidence)
    for pattern, kind in WORDS:
        found = pattern.search(text)
        if found:
            return kind, f"text {found[0][:40]!r}"
    return None


def meaning_of_a_bad_request(evidence: Evidence) -> Found | None:
    """What is wrong with a request, where only prose tells it."""
    text = message_of(evidence)
    for pattern, kind in WORDS[:3]:
        found = pattern.search(text)
        if found:
            return kind, f"text {found[0][:40]!r}"
    return None
