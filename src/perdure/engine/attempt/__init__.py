"""One attempt from inside: its context, threads, child processes, limit and raw output."""
