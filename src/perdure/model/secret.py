"""A text that nobody is to read: a password, a key."""

from typing import NoReturn


class Secret:
    """A text that is shown as ``***``, however it is shown; only `reveal` gives it away.

    It is no ``str``, so that whatever writes texts (JSON, a store, a join of strings) refuses it or shows it masked.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for whoever has to use it; not to be kept."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __format__(self, form: str) -> str:
        return format("***", form)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written down; reveal it to whoever has to know it")
