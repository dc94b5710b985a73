"""The statements of this store."""

from perdure.stores.statements import statements

SQL = statements("perdure.stores.postgres")
