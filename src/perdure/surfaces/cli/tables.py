"""Plain tables and short texts, for terminals and for files alike."""

from collections.abc import Collection, Sequence
from datetime import datetime

_GAP = "  "
NANO = 1_000_000_000
_CENTS_TENTH = 0.001


def table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], *, left: Collection[str] = ()
) -> list[str]:
    """Aligned columns under their heads, a line each; columns whose heads are named in ``left`` begin at the left.

    The last column is never padded, so that a long text there costs the other lines nothing.
    """
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]

    def line(cells: Sequence[str]) -> str:
        placed = [
            cell.ljust(width) if head in left else cell.rjust(width)
            for head, cell, width in zip(heads, cells, widths, strict=True)
        ]
        return _GAP.join(placed).rstrip()

    return [line(heads), *(line(cells) for cells in texts)]


def shorten(text: str, chars_max: int) -> str:
    """A text on one line that no terminal obeys, cut where it is too long."""
    plain = " ".join(text.split())
    safe = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in plain)
    return safe if len(safe) <= chars_max else safe[: chars_max - 1] + "…"


def so_many(count: int, noun: str) -> str:
    """So many of something."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def day_at(moment: datetime | None) -> str:
    """A moment to the second, for a column."""
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%SZ")


def seconds(value_s: float | None) -> str:
    """A duration, for a column."""
    if value_s is None:
        return "-"
    if value_s < 1:
        return f"{value_s * 1_000:.1f} ms"
    return f"{value_s:.2f} s" if value_s < 120 else f"{value_s / 60:.1f} min"


def percent(share: float) -> str:
    """A share, for a column."""
    return f"{share * 100:.1f} %"


def spent_words(cost_nusd: int, tokens_in: int, tokens_out: int) -> str:
    """What was paid, in money and tokens; empty where nothing was told."""
    if not (cost_nusd or tokens_in or tokens_out):
        return ""
    return f"cost {dollars(cost_nusd / NANO)}; tokens {tokens_in:,} in, {tokens_out:,} out"


def dollars(value_usd: float) -> str:
    """Money; what is less than the usual digits can show has as many as its first two need."""
    if not 0 < value_usd < _CENTS_TENTH:
        return f"${value_usd:,.4f}"
    digits = f"{float(f'{value_usd:.1e}'):.9f}".rstrip("0")
    return f"${digits}" if float(digits) else "less than $0.000000001"
