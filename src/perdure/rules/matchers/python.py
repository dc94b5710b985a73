"""Python's own exceptions, our own, and the operating system's numbers."""

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Family, Found

ERRNOS: dict[str, Kind] = {
    "ENOSPC": Kind.RESOURCE_EXHAUSTED,
    "EDQUOT": Kind.RESOURCE_EXHAUSTED,
    "EMFILE": Kind.RESOURCE_EXHAUSTED,
    "ENFILE": Kind.RESOURCE_EXHAUSTED,
    "ENOMEM": Kind.RESOURCE_EXHAUSTED,
    "EAGAIN": Kind.RESOURCE_EXHAUSTED,
    "ENOBUFS": Kind.RESOURCE_EXHAUSTED,
    "EADDRNOTAVAIL": Kind.RESOURCE_EXHAUSTED,  # no port is left
    "EIO": Kind.STORAGE_TRANSIENT,
    "ESTALE": Kind.STORAGE_TRANSIENT,
    "ECONNREFUSED": Kind.NETWORK,
    "EHOSTUNREACH": Kind.NETWORK,
    "EHOSTDOWN": Kind.NETWORK,
    "ENETUNREACH": Kind.NETWORK,
    "ENETDOWN": Kind.NETWORK,
    "ECONNRESET": Kind.AMBIGUOUS,
    "ECONNABORTED": Kind.AMBIGUOUS,
    "EPIPE": Kind.AMBIGUOUS,
    "ETIMEDOUT": Kind.TIMEOUT,
    "ENOENT": Kind.NOT_FOUND,
    "EACCES": Kind.CONFIG_MISSING,
    "EPERM": Kind.CONFIG_MISSING,
    "EROFS": Kind.CONFIG_MISSING,
    "EFBIG": Kind.TOO_LARGE,
    "E2BIG": Kind.TOO_LARGE,
}

# The nearest class wins, so a subclass may differ from its parent.
CLASSES: dict[str, Kind] = {
    "builtins.TimeoutError": Kind.TIMEOUT,
    "subprocess.TimeoutExpired": Kind.TIMEOUT,
    "asyncio.CancelledError": Kind.CANCELLED,
    "concurrent.CancelledError": Kind.CANCELLED,
    "concurrent.BrokenExecutor": Kind.RESOURCE_EXHAUSTED,
    "queue.Full": Kind.RESOURCE_EXHAUSTED,  # a pool of our own has no room
    "asyncio.QueueFull": Kind.RESOURCE_EXHAUSTED,
    "builtins.MemoryError": Kind.RESOURCE_EXHAUSTED,
    "torch.OutOfMemoryError": Kind.RESOURCE_EXHAUSTED,
    "builtins.ConnectionRefusedError": Kind.NETWORK,
    "builtins.ConnectionResetError": Kind.AMBIGUOUS,
    "builtins.ConnectionAbortedError": Kind.AMBIGUOUS,
    "builtins.BrokenPipeError": Kind.AMBIGUOUS,
    "builtins.ConnectionError": Kind.NETWORK,
    "asyncio.IncompleteReadError": Kind.AMBIGUOUS,
    "builtins.FileNotFoundError": Kind.NOT_FOUND,
    "builtins.PermissionError": Kind.CONFIG_MISSING,
    "builtins.UnicodeDecodeError": Kind.INVALID_OUTPUT,  # as JSON that does not parse
    "zipfile.BadZipFile": Kind.INPUT_INVALID,
    "gzip.BadGzipFile": Kind.INPUT_INVALID,
    "pypdf.PyPdfError": Kind.INPUT_INVALID,
    "builtins.RecursionError": Kind.INTERNAL,
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
    "perdure.StoreUnavailable": Kind.STORAGE_TRANSIENT,
    "perdure.StoreFull": Kind.RESOURCE_EXHAUSTED,
    "perdure.ConfigError": Kind.INTERNAL,
    "perdure.CallerError": Kind.INTERNAL,
    "perdure.BugError": Kind.INTERNAL,
}

_SQLITE: dict[str, Kind] = {
    "BUSY": Kind.STORAGE_TRANSIENT,
    "LOCKED": Kind.STORAGE_TRANSIENT,
    "IOERR": Kind.STORAGE_TRANSIENT,
    "PROTOCOL": Kind.STORAGE_TRANSIENT,
    "FULL": Kind.RESOURCE_EXHAUSTED,
    "NOMEM": Kind.RESOURCE_EXHAUSTED,
    "INTERRUPT": Kind.CANCELLED,
    "READONLY": Kind.CONFIG_MISSING,
    "CANTOPEN": Kind.CONFIG_MISSING,
    "PERM": Kind.CONFIG_MISSING,
    "AUTH": Kind.AUTH,
    "TOOBIG": Kind.TOO_LARGE,
    "CONSTRAINT": Kind.INVALID_REQUEST,
    "MISMATCH": Kind.INVALID_REQUEST,
    "RANGE": Kind.INTERNAL,
    "MISUSE": Kind.INTERNAL,
}


def sqlite_code(evidence: Evidence) -> Found | None:
    """SQLite's result codes; an extended one begins with the plain one."""
    for code in evidence.codes:
        if code.startswith("SQLITE_"):
            kind = _SQLITE.get(code.split("_")[1])
            if kind is not None:
                return kind, f"sqlite code {code}"
    return None


def system_error(evidence: Evidence) -> Found | None:
    """The kind that an operating system error number stands for."""
    kind = ERRNOS.get(evidence.errno or "")
    return None if kind is None else (kind, f"errno {evidence.errno}")


FAMILY = Family(
    name="python",
    traps=(sqlite_code,),
    late_classes=CLASSES,
    # A group's first exception is its cause.
    wrappers={"builtins.BaseExceptionGroup": Kind.UNKNOWN},
    parents={
        "asyncio.CancelledError": "builtins.BaseException",
        "asyncio.IncompleteReadError": "builtins.EOFError",
        "subprocess.TimeoutExpired": "subprocess.SubprocessError",
    },
)
