"""Stores: guarded writes and plain reads. They write what they are told and hold no rules."""
