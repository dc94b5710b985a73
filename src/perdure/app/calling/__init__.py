"""Calls: a pipeline that runs now, in its caller's process."""
