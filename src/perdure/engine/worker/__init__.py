"""The working process: an event loop that runs stages, and a pump that trades with the store."""
