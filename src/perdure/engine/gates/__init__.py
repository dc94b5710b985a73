"""A worker's part in the gates of its upstreams."""
