"""Tables that recognise failure kinds, one file per family, by name only; and a user's own lines.

No vendor library is imported. `families` holds the families in their order, `rules/classify.py` the
order of the questions that are put to them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.model.errors import ConfigError
from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules import field_checks


@dataclass(frozen=True, slots=True)
class Match:
    """A user's own line of the table: every field that is given must match, then it is ``kind``.

    ``code`` is compared without regard to case. ``name`` is a class of the exception's ancestry,
    qualified or bare. ``text`` is a part of the message, without regard to case.
    """

    kind: Kind
    status: int | None = None
    code: str | None = None
    name: str | None = None
    sqlstate: str | None = None
    text: str | None = None

    if TYPE_CHECKING:  # a kind may be given by its name

        def __init__(
            self,
            kind: Kind | str,
            status: int | None = None,
            code: str | None = None,
            name: str | None = None,
            sqlstate: str | None = None,
            text: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", field_checks.one_of("match.kind", Kind, self.kind))
        for field in ("code", "name", "sqlstate", "text"):
            if getattr(self, field) is not None:
                field_checks.text(f"match.{field}", getattr(self, field), 200)
        if self.status is not None:
            field_checks.whole_number("match.status", self.status, 100, 999)
        if not any((self.status, self.code, self.name, self.sqlstate, self.text)):
            raise ConfigError(
                f"the match for {self.kind.value!r} matches nothing; give a status, code, name, "
                "sqlstate or text"
            )

    @property
    def is_by_status_alone(self) -> bool:
        """Whether it looks at nothing but the HTTP status."""
        return not any((self.code, self.name, self.sqlstate, self.text))

    def fits(self, evidence: Evidence) -> bool:
        """Whether every field that is given matches."""
        return (
            (self.status is None or self.status == evidence.status)
            and (self.code is None or _has_code(evidence.codes, self.code.lower()))
            and (self.name is None or _has_name(evidence.names, self.name))
            and (self.sqlstate is None or self.sqlstate.upper() == evidence.sqlstate)
            and (self.text is None or _has_text(evidence, self.text.lower()))
        )


def _has_code(codes: tuple[str, ...], wanted: str) -> bool:
    return any(code.lower() == wanted for code in codes)


def _has_name(names: tuple[str, ...], wanted: str) -> bool:
    return any(name == wanted or name.rpartition(".")[2] == wanted for name in names)


def _has_text(evidence: Evidence, wanted: str) -> bool:
    return wanted in evidence.message.lower() or wanted in (evidence.fact("message") or "").lower()
