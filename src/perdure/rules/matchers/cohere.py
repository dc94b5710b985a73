"""Cohere: one class for each status, and no codes."""

from perdure.model.kinds import Kind
from perdure.rules.matchers.family import Family

_STATUSES = {
    "cohere.BadRequestError": 400,
    "cohere.UnauthorizedError": 401,
    "cohere.ForbiddenError": 403,
    "cohere.NotFoundError": 404,
    "cohere.UnprocessableEntityError": 422,
    "cohere.TooManyRequestsError": 429,
    "cohere.ClientClosedRequestError": 499,
    "cohere.InternalServerError": 500,
    "cohere.NotImplementedError": 501,
    "cohere.ServiceUnavailableError": 503,
    "cohere.GatewayTimeoutError": 504,
}

FAMILY = Family(
    name="cohere",
    roots=frozenset({"cohere"}),
    classes={"cohere.InvalidTokenError": Kind.AUTH},  # its 498 is not Groq's
    statuses=_STATUSES,
    parents=dict.fromkeys((*_STATUSES, "cohere.InvalidTokenError"), "cohere.ApiError"),
)
