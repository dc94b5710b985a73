"""What can go wrong for technical reasons: 22 variants, and three that were added later. Each is of one class.

A class says whose fault it is: final is the submitter's, retryable the infrastructure's, rate_limited nobody's but an outside
limit's. The code that meets a fault names its variant; nothing reads a message to find out. Perdure goes by the variant's kind: its
preset ``verifier`` has one class for each kind, which is stored with the run.

A verdict is no error: a run that does not reach its goal is *failed*, and that is a result.
"""

from enum import Enum

from perdure import Kind, StageError

FINAL, RETRYABLE, RATE_LIMITED = "final", "retryable", "rate_limited"


class Variant(Enum):
    """Its code, its class, and the kind by which Perdure knows it."""

    NO_LINK = "download.no_link", FINAL, Kind.INPUT_INVALID
    SECURITY_VIOLATION = "download.security_violation", FINAL, Kind.CONTENT_REFUSED
    FORBIDDEN = "download.forbidden", FINAL, Kind.AUTH
    MISSING = "download.missing", FINAL, Kind.NOT_FOUND
    SERVICE_ERROR = "download.service_error", RETRYABLE, Kind.UPSTREAM_UNAVAILABLE
    DOWNLOAD_IO = "download.io", RETRYABLE, Kind.RESOURCE_EXHAUSTED
    LIMITED = "download.rate_limited", RATE_LIMITED, Kind.RATE_LIMITED

    BAD_SAVE = "game.bad_save", FINAL, Kind.INPUT_INVALID
    BAD_VERSION = "game.bad_version", FINAL, Kind.INPUT_INVALID
    OLD_VERSION = "game.old_version", FINAL, Kind.INPUT_INVALID
    MOD_MISMATCH = "game.mod_mismatch", FINAL, Kind.INPUT_INVALID
    SCRIPT_INJECTION = "game.script_injection", FINAL, Kind.CONTENT_REFUSED
    GAME_DOWNLOAD = "game.download", RETRYABLE, Kind.UPSTREAM_UNAVAILABLE
    EXTRACTION = "game.extraction", RETRYABLE, Kind.INVALID_OUTPUT
    INSTALL_DIR = "game.install_dir", RETRYABLE, Kind.RESOURCE_EXHAUSTED
    SPAWN = "game.spawn", RETRYABLE, Kind.RESOURCE_EXHAUSTED
    MOD_INFO = "game.mod_info", RETRYABLE, Kind.UPSTREAM_ERROR
    GAME_IO = "game.io", RETRYABLE, Kind.RESOURCE_EXHAUSTED

    API_NETWORK = "api.network", RETRYABLE, Kind.NETWORK
    API_PARSE = "api.parse", RETRYABLE, Kind.INVALID_OUTPUT
    API_NOT_FOUND = "api.not_found", FINAL, Kind.NOT_FOUND
    API_MISSING_FIELD = "api.missing_field", FINAL, Kind.INPUT_INVALID

    # Added later.
    REPLAY_TIMEOUT = "replay.timeout", FINAL, Kind.CONTENT_REFUSED
    REPLAY_REFUSED = "replay.refused", FINAL, Kind.CONTENT_REFUSED  # it ended and said why
    REPLAY_CRASHED = "replay.crashed", RETRYABLE, Kind.UPSTREAM_ERROR  # it ended and did not

    def __init__(self, code: str, error_class: str, kind: Kind) -> None:
        self.code, self.error_class, self.kind = code, error_class, kind


class VerifyError(StageError):
    """A run cannot be verified, for the time being or for good; raise it ``from`` what was met, where there is a wait hint."""

    def __init__(self, variant: Variant, detail: str) -> None:
        self.variant = variant
        said = f"{variant.code}: {detail}"
        super().__init__(variant.kind, said, public_message=said)
