"""The gate in front of an upstream, as arithmetic: when it holds, probes, opens, and how fast calls go."""
