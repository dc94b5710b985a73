"""What the deeds of operators and of the upkeep need of a store, whichever it is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from perdure.model.changes import ChangeKind
from perdure.model.operations import Deed
from perdure.stores.change_lines import Entry
from perdure.stores.statements import Statements

T = TypeVar("T")
OpenTransaction = Any  # a connection of the store's driver, inside a transaction


class SharedWriting(ABC):
    """How a store writes: in one transaction, with a line in the audit log and one in the change feed."""

    _sql: ClassVar[Statements]

    @abstractmethod
    def _write(self, work: Callable[[OpenTransaction, int], T]) -> T:
        """Do some work in one transaction, at the store's time."""

    @abstractmethod
    def _execute(self, sql: str, values: Mapping[str, object]) -> int:
        """Carry out one statement, which needs no transaction around it; how many rows it changed."""

    @abstractmethod
    def _note(
        self, cx: OpenTransaction, verb: str, subjects: Sequence[str], deed: Deed, now: int
    ) -> None:
        """Write a line in the audit log for each subject."""

    @abstractmethod
    def _tell(
        self, cx: OpenTransaction, kind: ChangeKind, entries: Sequence[Entry], now: int
    ) -> None:
        """Write a line of the change feed."""

    @abstractmethod
    def _wake(self, cx: OpenTransaction) -> None:
        """Tell idle workers to look, where a store can; it is only a hint."""
