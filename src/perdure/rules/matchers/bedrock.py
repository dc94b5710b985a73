"""Bedrock and AWS at large: the codes of botocore's ClientError, and of its event streams."""

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Family, Found
from perdure.rules.matchers.http import STATUSES

_MODEL_ERRORS = ("ModelErrorException", "ModelStreamErrorException")


def model_error(evidence: Evidence) -> Found | None:
    """The model failed behind Bedrock; the status that the model gave says more than 424."""
    found = [code for code in evidence.codes if _upper_first(code) in _MODEL_ERRORS]
    if not found:
        return None
    original = evidence.fact("originalStatusCode") or ""
    kind = STATUSES.get(int(original)) if original.isascii() and original.isdigit() else None
    is_told = kind is not None and original.startswith("4")
    return kind if is_told and kind else Kind.AMBIGUOUS, f"bedrock code {found[0]}"


def _upper_first(code: str) -> str:
    return code[:1].upper() + code[1:]


_CODES = {
    "ThrottlingException": Kind.RATE_LIMITED,
    "TooManyRequestsException": Kind.RATE_LIMITED,
    "ServiceQuotaExceededException": Kind.QUOTA_WINDOW,
    "ModelNotReadyException": Kind.UPSTREAM_UNAVAILABLE,
    "ServiceUnavailableException": Kind.UPSTREAM_UNAVAILABLE,
    "InternalServerException": Kind.UPSTREAM_ERROR,
    "ModelTimeoutException": Kind.TIMEOUT,
    "AccessDeniedException": Kind.AUTH,
    "UnrecognizedClientException": Kind.AUTH,
    "ExpiredTokenException": Kind.AUTH,
    "InvalidSignatureException": Kind.AUTH,
    "ResourceNotFoundException": Kind.NOT_FOUND,
    "ConflictException": Kind.UPSTREAM_ERROR,
}


def _both_cases(codes: dict[str, Kind]) -> dict[str, Kind]:
    """Event streams spell the first letter small."""
    return codes | {code[:1].lower() + code[1:]: kind for code, kind in codes.items()}


FAMILY = Family(
    name="bedrock",
    roots=frozenset({"botocore", "boto3", "aiobotocore", "aioboto3"}),
    traps=(model_error,),
    codes=_both_cases(_CODES),
    weak_codes=_both_cases({"ValidationException": Kind.INVALID_REQUEST}),
)
