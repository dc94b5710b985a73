"""A new life for failed jobs."""

from collections.abc import Sequence

from perdure.model.operations import Revival
from perdure.stores.postgres.lending import Cx
from perdure.stores.postgres.ranking import ranks_anew
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import AGEING_US, encoded


def revive(cx: Cx, chosen: Sequence[Revival], now: int) -> set[int]:
    """Begin new lives; the numbers of the jobs that were still the failed ones that were seen."""
    ranks = ranks_anew(cx, chosen, now)
    rows = [
        {
            "no": one.no, "token": one.token, "stage": one.stage, "lane": one.lane,
            "input_from": one.input_from, "redrive_run": one.redrive_run,
            "rank_at": ranks.get(one.no),
        }
        for one in chosen
    ]  # fmt: skip
    where = {"revivals": encoded(rows), "now": now, "ageing_us": AGEING_US}
    done = {no for (no,) in cx.execute(SQL.revive, where).fetchall()}
    forgotten = [
        {"no": one.no, "stage": stage}
        for one in chosen
        if one.no in done
        for stage in one.forgotten
    ]
    if forgotten:
        cx.execute(SQL.checkpoints_forget, {"forgotten": encoded(forgotten)})
    return done
