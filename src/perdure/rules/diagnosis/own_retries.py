"""What a client or a decorator of somebody else's says of its own retries.

Known by the *short names* of its classes, as failures are (`rules/matchers/family.py`). Everything here is foreign: what
cannot be read is not there.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from perdure.rules.foreign_code import member_of, number_of, try_or_none
from perdure.rules.matchers.family import short_name

_BOTO_CALLS = {"legacy": 5, "standard": 3, "adaptive": 3}
_GENAI_CALLS = 5  # google-genai 2.x, where retries are on and no number is said
_OBSTORE_RETRIES = 10
_URLLIB3_RETRIES = 3


def _path(thing: Any, *names: str) -> Any:
    for name in names:
        thing = member_of(thing, name)
    return thing


def _of_sdk(client: Any) -> float:
    return number_of(member_of(client, "max_retries")) or 0


def _of_boto(client: Any) -> float:
    said = _path(client, "meta", "config", "retries")
    total = number_of(member_of(said, "total_max_attempts"))
    if total is None:
        more = number_of(member_of(said, "max_attempts"))
        mode = member_of(said, "mode")
        total = _BOTO_CALLS.get(str(mode), 5) if more is None else more + 1
    return max(0, total - 1)


def _of_genai(client: Any) -> float:
    said = _path(client, "_api_client", "_http_options", "retry_options")
    if said is None:
        return 0
    calls = number_of(member_of(said, "attempts"))
    return max(0, (_GENAI_CALLS if calls is None else calls) - 1)


def _of_mistral(client: Any) -> float:
    said = _path(client, "sdk_configuration", "retry_config")
    return math.inf if type(said).__name__ == "RetryConfig" else 0


def _of_obstore(store: Any) -> float:
    said = member_of(store, "retry_config")
    count = number_of(member_of(said, "max_retries"))
    return _OBSTORE_RETRIES if count is None else count


def _of_retry(said: Any) -> float:
    """Of urllib3's own word for it: a number, False, or a Retry that has one."""
    total = said if isinstance(said, int) else member_of(said, "total")
    return 0 if isinstance(total, bool) else number_of(total) or 0


def _of_pool(pool: Any) -> float:
    said = _path(pool, "connection_pool_kw", "retries")
    return _URLLIB3_RETRIES if said is None else _of_retry(said)


def _of_session(session: Any) -> float:
    adapters = member_of(session, "adapters")
    values = try_or_none(lambda: list(adapters.values())) or []
    return max((_of_retry(member_of(one, "max_retries")) for one in values), default=0)


def _of_httpx(client: Any) -> float:
    return number_of(_path(client, "_transport", "_pool", "_retries")) or 0


def _of_tenacity(retrying: Any) -> float:
    calls = number_of(_path(retrying, "stop", "max_attempt_number"))
    return math.inf if calls is None else max(0, calls - 1)


def _of_stamina(retrying: Any) -> float:
    calls = number_of(member_of(retrying, "_attempts"))
    return math.inf if calls is None else max(0, calls - 1)


CLIENTS: Mapping[str, Callable[[Any], float]] = {
    "anthropic.BaseClient": _of_sdk,
    "botocore.BaseClient": _of_boto,
    "google.Client": _of_genai,
    "groq.BaseClient": _of_sdk,
    "httpx.AsyncClient": _of_httpx,
    "httpx.Client": _of_httpx,
    "httpx2.AsyncClient": _of_httpx,
    "httpx2.Client": _of_httpx,
    "mistralai.Mistral": _of_mistral,
    "obstore.AzureStore": _of_obstore,
    "obstore.GCSStore": _of_obstore,
    "obstore.S3Store": _of_obstore,
    "openai.BaseClient": _of_sdk,
    "requests.Session": _of_session,
    "stamina._RetryContextIterator": _of_stamina,
    "tenacity.BaseRetrying": _of_tenacity,
    "urllib3.PoolManager": _of_pool,
}

# Of classes that try again unless they are told otherwise: the argument that tells them.
TELLING: Mapping[str, str] = {
    "anthropic.BaseClient": "max_retries",
    "groq.BaseClient": "max_retries",
    "obstore.AzureStore": "retry_config",
    "obstore.GCSStore": "retry_config",
    "obstore.S3Store": "retry_config",
    "openai.BaseClient": "max_retries",
    "urllib3.PoolManager": "retries",
}

# The same where the module is first imported in the function that uses it: by the words that the code has.
WORDS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("Anthropic", "AsyncAnthropic"),
    "groq": ("Groq", "AsyncGroq"),
    "openai": ("OpenAI", "AsyncOpenAI", "AzureOpenAI", "AsyncAzureOpenAI"),
}


def class_names(kind: type) -> list[str]:
    """The short names of a class and its ancestors."""
    return [short_name(f"{one.__module__}.{one.__qualname__}") for one in kind.__mro__]


def retries_of(thing: object) -> float:
    """How many more calls a thing makes by itself; infinity where that is not said, 0 where it makes none."""
    names = try_or_none(class_names, type(thing)) or []
    known = next((CLIENTS[name] for name in names if name in CLIENTS), None)
    return 0 if known is None else try_or_none(known, thing) or 0


def telling_argument(thing: Any) -> str | None:
    """Of a class whose clients try again unless they are told otherwise: the argument that tells them."""
    is_class = issubclass(type(thing), type)  # isinstance would ask a foreign thing for its class
    names = (try_or_none(class_names, thing) or []) if is_class else []
    return next((TELLING[name] for name in names if name in TELLING), None)
