"""The worker, put together: the processes of `perdure worker`, and one inside another program."""
