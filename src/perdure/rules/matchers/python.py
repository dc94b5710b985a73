"""Python's own exceptions, by the qualified names of their ancestry."""

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence

ERRNOS: dict[str, Kind] = {
    "ENOSPC": Kind.RESOURCE_EXHAUSTED,
    "EDQUOT": Kind.RESOURCE_EXHAUSTED,
    "EMFILE": Kind.RESOURCE_EXHAUSTED,
    "ENFILE": Kind.RESOURCE_EXHAUSTED,
    "ENOMEM": Kind.RESOURCE_EXHAUSTED,
    "ECONNREFUSED": Kind.NETWORK,
    "ECONNRESET": Kind.NETWORK,
    "ECONNABORTED": Kind.NETWORK,
    "EPIPE": Kind.NETWORK,
    "EHOSTUNREACH": Kind.NETWORK,
    "ENETUNREACH": Kind.NETWORK,
    "ENETDOWN": Kind.NETWORK,
    "ETIMEDOUT": Kind.TIMEOUT,
    "ENOENT": Kind.NOT_FOUND,
}

# First name found wins, nearest class first, so a subclass may differ from its parent.
CLASSES: dict[str, Kind] = {
    "json.decoder.JSONDecodeError": Kind.INVALID_OUTPUT,
    "msgspec.DecodeError": Kind.INVALID_OUTPUT,
    "msgspec.ValidationError": Kind.INVALID_OUTPUT,
    "perdure.model.errors.PayloadRefused": Kind.INVALID_OUTPUT,
    "builtins.TimeoutError": Kind.TIMEOUT,
    "asyncio.exceptions.CancelledError": Kind.CANCELLED,
    "concurrent.futures._base.CancelledError": Kind.CANCELLED,
    "builtins.MemoryError": Kind.RESOURCE_EXHAUSTED,
    "builtins.RecursionError": Kind.INTERNAL,
    "http.client.IncompleteRead": Kind.AMBIGUOUS,
    "http.client.RemoteDisconnected": Kind.AMBIGUOUS,
    "http.client.HTTPException": Kind.NETWORK,
    "socket.gaierror": Kind.NETWORK,
    "ssl.SSLCertVerificationError": Kind.CONFIG_MISSING,
    "ssl.SSLError": Kind.NETWORK,
    "urllib.error.URLError": Kind.NETWORK,
    "builtins.ConnectionError": Kind.NETWORK,
    "builtins.FileNotFoundError": Kind.NOT_FOUND,
    "perdure.model.errors.ConfigError": Kind.INTERNAL,
    "perdure.model.errors.CallerError": Kind.INTERNAL,
    "builtins.AssertionError": Kind.INTERNAL,
    "builtins.AttributeError": Kind.INTERNAL,
    "builtins.ImportError": Kind.INTERNAL,
    "builtins.NameError": Kind.INTERNAL,
    "builtins.NotImplementedError": Kind.INTERNAL,
    "builtins.SyntaxError": Kind.INTERNAL,
    "builtins.TypeError": Kind.INTERNAL,
    "builtins.KeyboardInterrupt": Kind.INTERNAL,
    "builtins.SystemExit": Kind.INTERNAL,
    "builtins.GeneratorExit": Kind.INTERNAL,
}


def python_class(evidence: Evidence) -> Kind | None:
    """The kind that a Python exception class stands for; a bare URLError defers to its cause."""
    for name in evidence.names:
        if name == "urllib.error.URLError":
            return _caused(evidence) or Kind.NETWORK
        if name in CLASSES:
            return CLASSES[name]
    return None


def python_errno(evidence: Evidence) -> Kind | None:
    """The kind that an operating system error number stands for."""
    return ERRNOS.get(evidence.errno) if evidence.errno else None


def _caused(evidence: Evidence) -> Kind | None:
    for names in evidence.causes:
        for name in names:
            if name in CLASSES:
                return CLASSES[name]
    return None
