"""Ordered tables that recognise failure kinds, one file per family, by name only."""
