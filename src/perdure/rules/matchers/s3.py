"""Object stores: S3's error codes, its clones', and obstore's classes.

A code is believed whatever the status: ``RequestTimeout`` comes with 400, and a copy that failed
half-way comes with 200 and ``InternalError`` or ``SlowDown`` in the body.
"""

import re

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Family, Found
from perdure.rules.matchers.http import kind_of_status

_TRANSIENT = (
    "InternalError", "ServiceUnavailable", "RequestTimeout", "RequestTimeoutException",
    "PriorRequestNotComplete", "OperationAborted", "ConditionalRequestConflict", "BadDigest",
    "IncompleteBody", "BadGateway", "GatewayTimeout", "XAmzContentSHA256Mismatch",
    "RestoreAlreadyInProgress",
)  # fmt: skip
_THROTTLING = (
    "SlowDown", "Throttling", "ThrottledException", "RequestThrottledException", "RequestThrottled",
    "RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException",
    "ProvisionedThroughputExceededException", "TransactionInProgressException",
    "EC2ThrottledException", "SlowDownRead", "SlowDownWrite",
)  # fmt: skip
_CREDENTIAL = (
    "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
    "RequestTimeTooSkewed", "RequestExpired", "AccountProblem", "AllAccessDisabled",
    "InvalidSecurity", "TokenRefreshRequired",
)  # fmt: skip
_ABSENT = (
    "NoSuchKey", "NoSuchBucket", "NoSuchUpload", "NoSuchVersion", "NoSuchLifecycleConfiguration",
    "NoSuchBucketPolicy", "NotFound",
)  # fmt: skip
_WRONG = (
    "InvalidBucketName", "PreconditionFailed", "InvalidRange", "InvalidArgument", "InvalidRequest",
    "InvalidPart", "InvalidPartOrder", "InvalidDigest", "InvalidObjectState", "InvalidURI",
    "MalformedXML", "MethodNotAllowed", "MissingContentLength", "BucketAlreadyExists",
    "BucketAlreadyOwnedByYou", "BucketNotEmpty", "NotImplemented", "PermanentRedirect",
    "AuthorizationHeaderMalformed", "IllegalLocationConstraintException",
)  # fmt: skip
_LARGE = (
    "EntityTooLarge", "KeyTooLongError", "MaxMessageLengthExceeded", "MetadataTooLarge",
    "RequestHeaderSectionTooLarge", "TooManyParts",
)  # fmt: skip

CODES: dict[str, Kind] = {
    **dict.fromkeys(_TRANSIENT, Kind.STORAGE_TRANSIENT),
    **dict.fromkeys(_THROTTLING, Kind.RATE_LIMITED),
    **dict.fromkeys(_CREDENTIAL, Kind.AUTH),
    **dict.fromkeys(_ABSENT, Kind.NOT_FOUND),
    **dict.fromkeys(_WRONG, Kind.INVALID_REQUEST),
    **dict.fromkeys(_LARGE, Kind.TOO_LARGE),
    "EntityTooSmall": Kind.INVALID_REQUEST,
    "QuotaExceeded": Kind.BILLING,  # clones of S3; nothing passes until somebody makes room
    "XMinioStorageFull": Kind.STORAGE_TRANSIENT,
}

_OBSTORE_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_OBSTORE_STATUS = re.compile(r"status(?: code)?: ([45]\d\d)\b")
_OBSTORE_WORDS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"UnknownIssuer|InvalidCertificate|certificate"), Kind.CONFIG_MISSING),
    (re.compile(r"ConnectionRefused|dns error|kind: Connect\b"), Kind.NETWORK),
    (re.compile(r"TimedOut|kind: Timeout"), Kind.TIMEOUT),
    (
        re.compile(r"ConnectionReset|IncompleteMessage|kind: (?:Interrupted|Decode|Body)"),
        Kind.AMBIGUOUS,
    ),
)


def obstore_words(evidence: Evidence) -> Found | None:
    """obstore has one class for all that it has no class for, and tells the rest in its text."""
    code = _OBSTORE_CODE.search(evidence.message)
    if code is not None and code[1] in CODES:
        return CODES[code[1]], f"s3 code {code[1]}"
    status = _OBSTORE_STATUS.search(evidence.message)
    kind = kind_of_status(int(status[1])) if status else None
    if status is not None and kind is not None:
        return kind, f"http status {status[1]}"
    for pattern, meant in _OBSTORE_WORDS:
        found = pattern.search(evidence.message)
        if found:
            return meant, f"obstore text {found[0]!r}"
    return None


_OBSTORE = {
    "obstore.NotFoundError": Kind.NOT_FOUND,
    "obstore.PermissionDeniedError": Kind.AUTH,
    "obstore.UnauthenticatedError": Kind.AUTH,
    "obstore.AlreadyExistsError": Kind.INVALID_REQUEST,
    "obstore.PreconditionError": Kind.INVALID_REQUEST,
    "obstore.NotModifiedError": Kind.INVALID_REQUEST,
    "obstore.InvalidPathError": Kind.INVALID_REQUEST,
    "obstore.NotSupportedError": Kind.INTERNAL,
    "obstore.JoinError": Kind.INTERNAL,
    "obstore.UnknownConfigurationKeyError": Kind.CONFIG_MISSING,
}

FAMILY = Family(
    name="s3",
    roots=frozenset({"botocore", "boto3", "aiobotocore", "aioboto3", "obstore", "minio", "s3fs"}),
    class_traps={"obstore.BaseError": obstore_words},
    codes=CODES,
    late_classes={**_OBSTORE, "obstore.BaseError": Kind.STORAGE_TRANSIENT},
    parents={
        **dict.fromkeys(_OBSTORE, "obstore.BaseError"),
        "obstore.GenericError": "obstore.BaseError",
        "botocore.ClientError": "builtins.Exception",
    },
)
