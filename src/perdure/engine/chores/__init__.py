"""The chores of the upkeep, each a small step that does a bounded piece of its work."""
