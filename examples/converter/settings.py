"""The environment of the converter: every name of its design document, what it means and what it may be.

Perdure finds, checks and shows them, as it does its own: ``perdure config show converter.worker:app --origin``. A name that
is not set has the document's number. Three of them are settings of Perdure, whose own names (PERDURE_STORE, …) beat them.
"""

from perdure import Alias, ConfigError, Setting, Settings, load_settings

_DAY_S = 86_400.0

GATEWAY_URL = Setting("gateway_url", str, "", "URL", "Where the gateway is.")
UPLOADS_DIR = Setting("uploads_dir", str, "", "folder", "Where PDF files are kept.")
RESULTS_DIR = Setting("results_dir", str, "", "folder", "Where XML files are kept.")
ATTEMPTS_MAX = Setting("attempts_max", int, 3, "tries", "The first one included.", 1, 100)
BASE_DELAY_S = Setting("base_delay_s", float, 5.0, "seconds", "The first wait.", 0, _DAY_S)
JITTER_S_MAX = Setting("jitter_s_max", float, 5.0, "seconds", "Added to a wait.", 0, _DAY_S)
GATEWAY_TIMEOUT_S = Setting(
    "gateway_timeout_s", float, 60.0, "seconds", "How long a call may take.", 0.001, _DAY_S
)
CIRCUIT_WINDOW = Setting("circuit_window", int, 20, "calls", "What is looked at.", 1, 1_000)
CIRCUIT_FAIL_THRESHOLD = Setting(
    "circuit_fail_threshold", float, 0.5, "share", "Of them that hold the queue.", 0.01, 1
)
CIRCUIT_COOLDOWN_S = Setting(
    "circuit_cooldown_s", float, 60.0, "seconds", "Before the first look at its health.", 1, _DAY_S
)
# Not in the document, which leaves both open.
RESULTS_KEPT_S = Setting(
    "results_kept_s", float, _DAY_S, "seconds", "For what has ended.", 0, 3_650 * _DAY_S
)
UPLOAD_BYTES_MAX = Setting(
    "upload_bytes_max", int, 20_000_000, "bytes", "The largest file.", 1_024, 1_024**3
)

NAMES = (
    Alias("store", variable="DATABASE_URL", needed=True, begins=("postgresql://", "postgres://")),
    Alias("concurrency", variable="WORKER_CONCURRENCY", key="concurrency"),
    Alias("lease_ttl_s", variable="WORKER_LEASE_TTL_SEC", key="lease_ttl_s"),
    Alias(GATEWAY_URL, variable="GATEWAY_URL", needed=True, begins=("http://", "https://")),
    Alias(UPLOADS_DIR, variable="UPLOADS_DIR", needed=True),
    Alias(RESULTS_DIR, variable="RESULTS_DIR", needed=True),
    Alias(ATTEMPTS_MAX, variable="RETRY_MAX_ATTEMPTS"),
    Alias(BASE_DELAY_S, variable="RETRY_BASE_DELAY_MS", unit="ms"),
    Alias(JITTER_S_MAX, variable="RETRY_JITTER_MAX_MS", unit="ms"),
    Alias(GATEWAY_TIMEOUT_S, variable="GATEWAY_TIMEOUT_MS", unit="ms"),
    Alias(CIRCUIT_WINDOW, variable="CIRCUIT_WINDOW"),
    Alias(CIRCUIT_FAIL_THRESHOLD, variable="CIRCUIT_FAIL_THRESHOLD"),
    Alias(CIRCUIT_COOLDOWN_S, variable="CIRCUIT_COOLDOWN_MS", unit="ms"),
    Alias(RESULTS_KEPT_S, variable="RESULTS_KEPT_SEC"),
    Alias(UPLOAD_BYTES_MAX, variable="UPLOAD_MAX_BYTES"),
)
# Perdure's own are 32 and 15 s. A lease is extended every third of it: here every 30 s, as the document says.
DEFAULTS = {"concurrency": 4, "lease_ttl_s": 90.0}


def read_settings() -> Settings:
    """The settings in force; a `ConfigError` names each variable that is wrong, and what it may be.

    A row is listed with its job, so jobs are kept for a day longer than what they have made, or more.
    """
    settings = load_settings(NAMES, file_name="the converter's defaults", file_content=DEFAULTS)
    names = ("retain_succeeded_s", "retain_cancelled_s", "retain_discarded_s")
    least_s = settings[RESULTS_KEPT_S] + _DAY_S
    short = [one for one in names if settings[one] is not None and settings[one] < least_s]
    for name in short:
        if (origin := settings.origin(name)) != "default":
            why = "a job is kept for a day longer than RESULTS_KEPT_SEC says"
            raise ConfigError(f"{origin} must be at least {least_s:.0f}: {why}")
    return settings.with_given(dict.fromkeys(short, least_s))
