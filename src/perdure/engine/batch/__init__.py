"""Runs: many items fed, counted against a budget, and brought back as results."""
