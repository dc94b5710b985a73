"""What the surfaces ask of a store, an app or a policy."""
