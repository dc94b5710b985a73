"""Secrets in every form in which they turn up in error texts, for the tests that look for them."""

import string

from hypothesis import strategies as st

_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"


def _run(alphabet: str, low: int, high: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=low, max_size=high)


# A canary, and the text that holds it.
Held = tuple[str, str]


def _after(prefix: str, alphabet: str = _ALNUM, low: int = 16) -> st.SearchStrategy[Held]:
    """A key that says itself what it is."""
    return _run(alphabet, low, 40).map(lambda rest: (rest, prefix + rest))


def _said(form: str, alphabet: str = _ALNUM, low: int = 12) -> st.SearchStrategy[Held]:
    """A value that is said to be one, where the braces stand."""
    return _run(alphabet, low, 60).map(lambda rest: (rest, form.replace("{}", rest)))


secrets: st.SearchStrategy[Held] = st.one_of(
    *(
        _after(prefix)
        for prefix in (
            "sk-", "sk-ant-api03-", "sk-proj-", "gsk_", "AIza", "xoxb-", "xoxp-", "ghp_", "gho_",
            "github_pat_", "glpat-", "xai-", "sk_live_", "eyJ", "ya29.", "nvapi-", "pplx-",
        )
    ),
    _after("hf_", low=30),
    _after("AKIA", string.ascii_uppercase + string.digits),
    _after("ASIA", string.ascii_uppercase + string.digits),
    *(
        _said(form)
        for form in (
            "password={}", "password: {}", "PASSWORD={}", "passwd={}", "pwd={};", 'password="{}"',
            "api_key={}", "apikey: {}", "API key: {}", "Incorrect API key provided: {}.",
            "x-api-key: {}", "X-Goog-Api-Key: {}", "Ocp-Apim-Subscription-Key: {}",
            "Authorization: {}", "authorization: Basic {}", "Proxy-Authorization: Digest {}",
            '{"api_key": "{}"}', "{'Authorization': 'Bearer {}'}", r'{\"api_key\": \"{}\"}',
            "(b'x-api-key', b'{}')", "('Authorization', 'Token {}')", "client_secret={}",
            "aws_secret_access_key = {}", "access_token={}", "refresh_token: {}", "Set-Cookie: {}",
            "Signature={}", "secret => {}", "token={}",
            "https://user:{}@host/path", "postgres://u:{}@127.0.0.1:5432/db", "redis://:{}@h:1/0",
            "https://{}@host/path", "https://host/x?api_key={}", "https://host/x?a=1&sig={}&b=2",
            "https://host/x?key={}", "https://host/x?X-Amz-Signature={}",
            "https://host/x?access_token={}#y", "amqp://u:a/{}@host",
        )
    ),
    *(_said(form, low=20) for form in ("Bearer {}", "bearer {}", "token: Bearer {}")),
    *(
        _said(form, _HEX, 32)
        for form in ("key {}", "the key id is {}", "token was {}", "bad signature ({})", "secret {}")
    ),
    _said("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----"),
    _said("-----BEGIN PRIVATE KEY----- {}"),
)  # fmt: skip

_HOME = "/ho" + "me/{}/x"  # in parts: no path of a machine may stand in a file

paths: st.SearchStrategy[Held] = st.one_of(
    *(
        _said(form, string.ascii_lowercase, 8)
        for form in (
            "/srv/{}/app.py", _HOME, "'/data/{} x/y'", '"/{}"', "/etc/{}.conf", "~/{}",
            "file:///srv/{}", 'File "/usr/lib/{}.py", line 3', "(/opt/{}/bin)", "=/var/{}/log",
            r"C:\Users\{}\x.py", r"C:\Program Files\{}\x.py", r"\\server\share\{}", "D:/build/{}/x",
            r"'C:\\Users\\{}\\x'",
        )
    )
)  # fmt: skip


def pieces(canary: str, length: int = 10) -> list[str]:
    """Every piece of a canary that would betray it."""
    size = min(length, len(canary))
    return [canary[at : at + size] for at in range(len(canary) - size + 1)]
