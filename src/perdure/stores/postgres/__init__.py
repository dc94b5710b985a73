"""PostgreSQL: any number of machines on one database."""
