"""Whoever watches a working process: it starts it, beats for it, and says how it died."""
