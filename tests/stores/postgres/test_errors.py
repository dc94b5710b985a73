"""Every error of the driver is one of ours, says what to do, and has its exit code."""

import re
from pathlib import Path

import psycopg
import pytest

from perdure.model.errors import (
    SchemaMismatch,
    StoreBusy,
    StoreDamaged,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from perdure.stores.postgres.errors import BY_CLASS, BY_CODE, error_of
from tests.servers import programs

URL = "postgresql://ann:***@db/work"


def listed_by(postgres) -> set[str]:
    """The codes that a server of this version can give, by its own list."""
    with postgres.admin() as cx:
        (folder,) = cx.execute("SELECT setting FROM pg_config() WHERE name = 'SHAREDIR'").fetchone()
    # The wheel's server names the folder where it was built.
    found = [Path(str(folder)), programs.postgres(postgres.version).parent / "share/postgresql"]
    listing = next(path for one in found if (path := one / "errcodes.txt").exists())
    return set(re.findall(r"^([0-9A-Z]{5}) ", listing.read_text(), re.MULTILINE))


def known_to_the_driver() -> set[str]:
    classes = [one for one in vars(psycopg.errors).values() if isinstance(one, type)]
    return {one.sqlstate for one in classes if issubclass(one, psycopg.Error) and one.sqlstate}


def unmapped(codes: set[str], classes: set[str]) -> set[str]:
    return {code[:2] for code in codes} - classes


def test_every_class_that_the_server_lists_is_mapped(postgres):
    codes = listed_by(postgres)
    assert len(codes) > 200
    assert unmapped(codes, set(BY_CLASS)) == set()


def test_every_class_that_the_driver_knows_is_mapped():
    codes = known_to_the_driver()
    assert len(codes) > 200
    assert unmapped(codes, set(BY_CLASS)) == set()


def test_a_class_that_is_not_mapped_would_be_noticed(postgres):
    assert unmapped(listed_by(postgres), set(BY_CLASS) - {"57"}) == {"57"}


def test_every_code_of_the_table_is_one_that_the_server_lists(postgres):
    assert set(BY_CODE) <= listed_by(postgres)


@pytest.mark.parametrize("code", sorted(known_to_the_driver()))
def test_an_error_of_the_driver_is_one_of_ours_and_names_the_store(code):
    error = psycopg.errors.lookup(code)("what the server said\nin two lines")
    ours = error_of(error, URL)
    kind, advice = BY_CODE.get(code) or BY_CLASS[code[:2]]
    assert type(ours) is kind
    assert str(ours) == f"store {URL}: what the server said; in two lines; {advice}"


WORST = [
    # what the server reports, what it is to us, what the command line then ends with
    ("40P01", StoreBusy, 12),  # deadlock_detected
    ("40001", StoreBusy, 12),  # serialization_failure
    ("55P03", StoreBusy, 12),  # lock_not_available: lock_timeout
    ("57014", StoreBusy, 12),  # query_canceled: statement_timeout
    ("53300", StoreBusy, 12),  # too_many_connections
    ("53100", StoreFull, 13),  # disk_full
    ("25006", StoreReadOnly, 14),  # read_only_sql_transaction
    ("XX001", StoreDamaged, 15),  # data_corrupted
    ("XX002", StoreDamaged, 15),  # index_corrupted
    ("42P01", SchemaMismatch, 16),  # undefined_table
    ("42703", SchemaMismatch, 16),  # undefined_column
    ("3F000", SchemaMismatch, 16),  # invalid_schema_name
    ("42501", StoreDenied, 18),  # insufficient_privilege
    ("28P01", StoreDenied, 18),  # invalid_password
    ("28000", StoreDenied, 18),  # invalid_authorization_specification
    ("3D000", StoreUnavailable, 11),  # invalid_catalog_name
    ("08006", StoreUnavailable, 11),  # connection_failure
    ("57P01", StoreUnavailable, 11),  # admin_shutdown
    ("57P02", StoreUnavailable, 11),  # crash_shutdown
    ("57P03", StoreUnavailable, 11),  # cannot_connect_now
    ("53200", StoreUnavailable, 11),  # out_of_memory
    ("58030", StoreUnavailable, 11),  # io_error
    ("XX000", StoreUnavailable, 11),  # internal_error
    ("26000", StoreUnavailable, 11),  # a prepared statement that a pooler has lost
    ("23514", StoreError, 10),  # check_violation: ours to mend
    ("22P02", StoreError, 10),
]


@pytest.mark.parametrize(("code", "kind", "exit_code"), WORST)
def test_what_a_server_reports_is_told_apart_by_class_and_exit_code(code, kind, exit_code):
    error = error_of(psycopg.errors.lookup(code)("x"), URL)
    assert type(error) is kind
    assert error.exit_code == exit_code


# What libpq says before a connection stands; it has no SQLSTATE then. (Those that a server of our own can
# be made to say are in test_refusals.py.)
WORDS = [
    ('FATAL:  role "ann" does not exist', StoreDenied, "pg_hba.conf"),
    ('FATAL:  role "ann" is not permitted to log in', StoreDenied, "check the user"),
    ("FATAL:  SASL authentication failed", StoreDenied, "check the user"),
    ('FATAL:  Peer authentication failed for user "ann"', StoreDenied, "check the user"),
    ("fe_sendauth: no password supplied", StoreDenied, "the password in the URL"),
    (
        'FATAL:  too many connections for role "ann"',
        StoreBusy,
        "too many connections; raise max_connections",
    ),
    (
        "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
        StoreBusy,
        "max_connections",
    ),
    ("FATAL:  the database system is in recovery mode", StoreUnavailable, "may succeed later"),
    (
        "FATAL:  the database system is not yet accepting connections",
        StoreUnavailable,
        "may succeed later",
    ),
    ("server closed the connection unexpectedly", StoreUnavailable, "check that the server runs"),
    ("something that nobody has ever seen", StoreUnavailable, "check that the server runs"),
]


@pytest.mark.parametrize(("text", "kind", "advice"), WORDS)
def test_a_connection_that_never_stood_is_told_apart_by_its_words(text, kind, advice):
    error = error_of(psycopg.OperationalError(text), URL)
    assert type(error) is kind
    assert advice in str(error)


def test_a_code_beats_words():
    error = psycopg.errors.QueryCanceled('canceling statement: role "ann" does not exist')
    assert type(error_of(error, URL)) is StoreBusy


def test_words_of_our_own_mistakes_mean_nothing():
    error = psycopg.ProgrammingError("the placeholder 'x' does not exist")
    assert type(error_of(error, URL)) is StoreError
    assert "please report it" in str(error_of(error, URL))


def test_an_endless_message_is_cut():
    assert len(str(error_of(psycopg.OperationalError("x" * 100_000), URL))) < 1000


def test_an_error_without_a_word_is_named_by_its_class():
    assert "OperationalError" in str(error_of(psycopg.OperationalError(), URL))
