"""Text that is safe to keep: one bounded line, without secrets and without places on a server.

Somebody else wrote the text. It may hold an API key, a password in an address, a path of the
machine, fifty megabytes, or characters that a terminal obeys and a store chokes on.

Every pattern runs in linear time: its repeats are bounded or possessive, and none of them can be
entered twice over the same text. A pattern is tried only where one of its ``signs`` stands in the
text, since nearly all texts hold none. Words are looked for in a lower-case copy: a pattern that
ignores case would be four times slower.
"""

import re

from msgspec import Struct

from perdure.model.limits import MESSAGE_CHARS_MAX

SECRET = "[secret]"  # noqa: S105
PATH = "[path]"

_SECRET_CHARS_MAX = 1_000  # a longer one may be cut, and is still known by its beginning

# Controls, and the marks that turn the direction of writing: a terminal would obey them.
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)


class _Redaction(Struct, frozen=True):
    """What to replace after a group that stays, if there is one, and the signs that call for it."""

    signs: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str = SECRET
    ignores_case: bool = False


# Which keys are secret: the word before it says so. Looking behind keeps the pattern's start plain.
_KEY_OF = (
    "api",
    "access",
    "account",
    "secret",
    "private",
    "encryption",
    "signing",
    "master",
    "auth",
    "shared",
    "license",
    "storage",
    "subscription",
    "service",
    "openai",
    "anthropic",
    "goog",
    "aws",
)
_KEY = "key(?:" + "|".join(rf"(?<={word}key)|(?<={word}[-_ ]key)" for word in _KEY_OF) + ")"
_SECRET_WORD = (
    rf"(?:{_KEY}s?(?:[-_ ]?id)?|secrets?|password|passwd|passphrase|pass(?<![a-z]pass)|pwd|token"
    r"|credentials?|signature|authorization|cookie)"
)
# What may stand between the word and its value: `=`, `: `, `": "`, `', b'`, ` provided: `.
_BETWEEN = (
    r"(?:\s(?:provided|given|used|value|was|is)){0,2}\\{0,3}[\"']?\s{0,3}"
    r"(?:=>|[:=]|,(?=\s{0,3}b?[\"']))\s{0,3}(?:b?\\{0,3}[\"'])?"
)
_SCHEME = r"(?:(?:bearer|basic|token|digest|apikey|negotiate|aws4-hmac-sha256)\s{1,3})?"
_VALUE = r"(?:(?<=[\"'])[^\"'\\]++|[^\s\"'&,;<>(){}\[\]\\]++)"

_ALONE = r"(?<![\w/.~)\]%-]/)"  # the slash is the first, and no part of an address
_NOT_API = r"(?!/|v\d{1,2}\w{0,8}/)"  # neither an address nor the path of an API, as /v1/chat
_SEGMENT = r"[^\s\"'<>,;:()\[\]{}/]"

_REDACTIONS: tuple[_Redaction, ...] = (
    _Redaction(
        ("-----begin",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}-----(?:[^-]++|-(?!----END))*+(?:-----END[^-]{0,50}-{0,5})?"
        ),
    ),
    # user:password@ in an address, also where a slash was not escaped; a port is no password.
    _Redaction(
        ("://",),
        re.compile(
            r"(://)(?:(?:[^\s/?#@]++@)++|[^\s/?#@:]{0,128}:(?!\d{1,5}[/?#\s])[^\s@]{1,256}@)"
        ),
        f"{SECRET}@",
    ),
    # Keys that say themselves what they are.
    _Redaction(
        ("-",),
        re.compile(
            r"(?:sk-(?:(?<![A-Za-z]sk-)|(?=[A-Za-z_-]{0,64}\d)|(?=(?:ant|proj|or|svcacct)-))|csk-"
            r"|xai-|xox[a-z]-|xapp-|glpat-|pplx-|nvapi-)[\w*.+/=~-]{8,}+",
            re.ASCII,
        ),
    ),
    _Redaction(
        ("_",),
        re.compile(
            r"(?:sk_live_|sk_test_|rk_live_|rk_test_|gsk_|gh[pousr]_|github_pat_|whsec_"
            r"|hf_(?=[\w-]{20})|r8_(?=[\w-]{20})|fw_(?=[\w-]{20})|tgp_(?=[\w-]{20}))"
            r"[\w*.+/=~-]{8,}+",
            re.ASCII,
        ),
    ),
    _Redaction(
        ("eyj", "aiza", "akia", "asia", "absk", "aq.ab", "ya29."),
        re.compile(
            r"(?:eyJ|AIza|ABSK|AQ\.Ab|ya29\.|A[KS]IA(?=[A-Z0-9]{12}))[\w*.+/=~-]{8,}+", re.ASCII
        ),
    ),
    _Redaction(
        ("bearer", "basic"),
        re.compile(
            r"((?:bearer|basic)\s{1,3}\\{0,3}[\"']?)(?:(?=[a-z._~+/-]{0,64}[0-9=])"
            r"[\w.~+/=*-]{6,}+|[\w.~+/=*-]{16,}+)",
            re.ASCII,
        ),
        ignores_case=True,
    ),
    # A value that is said to be secret.
    _Redaction(
        ("key", "token", "secret", "pass", "pwd", "cred", "signature", "authorization", "cookie"),
        re.compile(rf"({_SECRET_WORD}{_BETWEEN}{_SCHEME}){_VALUE}"),
        ignores_case=True,
    ),
    # A long blob, a few words after such a word.
    _Redaction(
        ("key", "token", "secret", "pass", "cred", "signature"),
        re.compile(
            r"((?:key|token|secret|password|passphrase|credential|signature)s?[^\w]{1,4}+"
            r"(?:\w{1,16}[^\w]{1,4}+){0,3})[\w+/=-]{32,}+",
            re.ASCII,
        ),
        ignores_case=True,
    ),
    # In an address, a shorter word is enough: ?key=…, &sig=….
    _Redaction(
        ("?", "&"),
        re.compile(
            r"([?&][\w.%-]{0,40}(?:key|token|sig|signature|secret|pass|passwd|password|pwd|auth"
            r"|credential|code)[\w.%-]{0,20}=)[^\s&#\"'<>]++"
        ),
        ignores_case=True,
    ),
    # A drive's or a share's path, with or without spaces in its names.
    _Redaction(
        ("\\",),
        re.compile(
            r"(?:(?<![A-Za-z0-9])[A-Za-z]:\\{1,2}|(?<!\\)\\{2,4}(?=[\w.$-]{1,64}\\))"
            r"[^\s\"'<>|*?;,]*+(?:\s[^\s\"'<>|*?;,\\/:]{1,64}\\[^\s\"'<>|*?;,]*+){0,8}"
        ),
        PATH,
    ),
    # /dir/file, ~/file, '/file', /file.ext
    _Redaction(
        ("/",),
        re.compile(
            rf"/(?:(?<=file:/)[^\s\"'<>,;)\]}}]++|(?<=[\"']/){_NOT_API}[^\"'<>]++"
            rf"|(?<=~/)[^\s\"'<>,;:()]++|{_ALONE}{_NOT_API}{_SEGMENT}++(?:/{_SEGMENT}*+)++"
            rf"|{_ALONE}[\w-][\w.-]{{0,99}}\.[A-Za-z]\w{{0,8}}(?![\w/]))"
        ),
        PATH,
    ),
)


def one_line(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Text on one line, without control characters or lone surrogates, cut with a mark."""
    head = text[: chars_max * 2]
    return cut(_clean(head), chars_max, whole=len(head) == len(text))


def safe_line(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Text on one line as above, with secrets and server paths replaced."""
    if len(text) <= chars_max * 2:
        return cut(redact_line(_clean(text)), chars_max)
    line = redact_line(_clean(text[: chars_max * 2 + _SECRET_CHARS_MAX]))
    # A secret that the end of the head goes through may not look like one: leave out the last word.
    kept, _, last = line.rpartition(" ")
    line = kept if len(last) <= _SECRET_CHARS_MAX else line[:-_SECRET_CHARS_MAX]
    return cut(line, chars_max, whole=False)


def redact_line(line: str) -> str:
    """A line with secrets and server paths replaced."""
    lower = _lower(line)
    for one in _REDACTIONS:
        for sign in one.signs:
            if sign in lower:
                changed = _replace(one, line, lower)
                if changed is not line:
                    line, lower = changed, _lower(changed)
                break
    return line


def _replace(redaction: _Redaction, line: str, lower: str) -> str:
    pieces: list[str] = []
    at = 0
    for found in redaction.pattern.finditer(lower if redaction.ignores_case else line):
        kept_to = found.end(found.lastindex) if found.lastindex else found.start()
        pieces += (line[at:kept_to], redaction.replacement)
        at = found.end()
    return line if at == 0 else "".join((*pieces, line[at:]))


def _lower(line: str) -> str:
    lower = line.lower()
    if len(lower) == len(line):
        return lower
    return "".join(char.lower() if char.isascii() else char for char in line)


def _clean(text: str) -> str:
    if text.isascii() and text.isprintable():
        plain = "  " not in text and text[:1] != " " and text[-1:] != " "
        return text if plain else " ".join(text.split())
    line = " ".join(_CONTROLS.sub(" ", text).split())
    return line.encode("utf-8", "replace").decode("utf-8")


def cut(line: str, chars_max: int, *, whole: bool = True) -> str:
    """The head of a line, with a mark if it is too long or was not whole."""
    if whole and len(line) <= chars_max:
        return line
    return line[: chars_max - 1] + "…"
