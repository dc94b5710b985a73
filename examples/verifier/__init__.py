"""A daemon that verifies submitted runs of a game by replaying them: an application that runs on Perdure."""
