"""What some worker has to do for all of them, a bounded step at a time."""
