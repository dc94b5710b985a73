"""Judgement: what an outcome means and what to do about it. No clock, no chance, no I/O."""
