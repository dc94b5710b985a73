"""What the handles of an App share: the opened store, what the App declares, and how one waits for it."""
