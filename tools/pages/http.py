"""The page of the HTTP API, from the rows that serve it."""

from perdure.surfaces.http.asgi import ENDPOINTS
from perdure.surfaces.http.openapi import openapi, problems_of
from perdure.surfaces.http.problems import CODES


def http_page() -> list[str]:
    """Every endpoint with its scope, what it takes and gives, and every code that it may refuse with."""
    document = openapi(ENDPOINTS)
    lines = [
        "# The HTTP API",
        "",
        "How to serve it, and who may: [how-to](../howto-http.md). The same as OpenAPI 3.1: `GET /api/openapi.json`.",
        "",
        "| endpoint | scope | what it does | takes | answers |",
        "|---|---|---|---|---|",
    ]
    for one in ENDPOINTS:
        takes = (
            "–" if one.body is None else f"`{one.body.__name__}`" + (" a line" if one.lines else "")
        )
        gives = f"`{one.answers.__name__}`" + (
            " a line" if one.streams else " an event" if one.hears else ""
        )
        status = ", ".join(map(str, one.statuses))
        scope = "–" if one.scope is None else f"`{one.scope.value}`"
        lines.append(
            f"| `{one.method} {one.path}` | {scope} | {one.summary} | {takes} | {status}: {gives} |"
        )
    lines += [
        "| `GET /login` | – | The page where a browser logs in. | – | 200 |",
        "| `POST /login` | – | Change a token for a cookie. | a form: `token` | 303, 401 |",
        "| `POST /logout` | – | End a login. | a form: `csrf` | 303 |",
        "",
        "## Types",
        "",
    ]
    for name, kind in sorted(document["components"]["schemas"].items()):
        lines += [f"### {name}", "", kind.get("description", ""), ""]
        for field, about in kind.get("properties", {}).items():
            needed = "" if field in kind.get("required", ()) else ", may be left out"
            lines.append(f"- `{field}`: {_kind(about)}{needed}")
        lines.append("")
    lines += [
        "## Codes",
        "",
        "Every refusal is a problem by RFC 9457, `application/problem+json`, with one of these codes.",
        "",
        "| code | status | says | of |",
        "|---|---|---|---|",
    ]
    for code, (status, title) in CODES.items():
        of = sum(code in problems_of(one) for one in ENDPOINTS)
        lines.append(f"| `{code}` | {status} | {title} | {of} endpoints |")
    return lines


def _kind(about: dict[str, object]) -> str:
    """A type in a word or two."""
    if "$ref" in about:
        return f"`{str(about['$ref']).rsplit('/', 1)[1]}`"
    if "anyOf" in about:
        return " or ".join(_kind(one) for one in about["anyOf"])  # type: ignore[attr-defined]
    if about.get("type") == "array":
        items = about.get("items")
        return f"list of {_kind(items)}" if isinstance(items, dict) else "list"
    if about.get("format") == "date-time":
        return "moment"
    return str(about.get("type", "anything"))
