"""A server, or a pooler's role, that insists on stricter isolation than the store asks for."""

from functools import partial

import pytest

from perdure.model.errors import StoreError, StoreUnavailable
from tests.stores.kit import success
from tests.stores.postgres.kit import Place, at_once, opened, pid_of, with_options


@pytest.mark.parametrize("level", ["serializable", r"repeatable\ read"])
def test_a_server_that_insists_on_stricter_isolation_costs_tries_and_nothing_else(
    furnished, open_place, level
):
    """The server refuses what it cannot put in order; the same call again is harmless."""
    url = with_options(furnished, default_transaction_isolation=level)
    places = [open_place(url, series=n + 1) for n in range(4)]

    def again(call, *given, **named):
        while True:
            try:
                return call(*given, **named)
            except StoreUnavailable:
                continue

    def live(place: Place) -> int:
        worker = again(place.hire)
        again(place.store.enqueue, [place.new() for _ in range(25)])
        done = 0
        while claims := again(place.take, worker, 4):
            records = [success(one, worker) for one in claims]
            done += len(again(place.settle, *records, by=worker))
        return done

    assert sum(at_once([partial(live, one) for one in places])) == 100
    assert places[0].reader.books().succeeded == 100
    places[0].clean()


def test_an_error_in_the_commit_of_a_pipeline_undoes_all_of_it(furnished):
    connection = opened(furnished)
    with connection.autocommit() as cx:
        cx.execute("CREATE TABLE pairs (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    def twice() -> None:
        with connection.autocommit() as cx, cx.pipeline():
            cx.execute("INSERT INTO pairs VALUES (1)")
            cx.execute("INSERT INTO pairs VALUES (1)")

    for _ in range(20):  # what the driver makes of it depends on how the answers fall into packets
        with pytest.raises(StoreError):
            twice()
    with connection.autocommit() as cx:
        assert cx.execute("SELECT count(*) FROM pairs").fetchone() == (0,)
    connection.close()


def test_a_connection_that_could_not_leave_its_pipeline_is_never_lent_on(furnished):
    connection = opened(furnished)
    before = pid_of(connection)
    with connection.autocommit() as cx:
        cx.pgconn.enter_pipeline_mode()
    assert pid_of(connection) != before
    connection.close()
