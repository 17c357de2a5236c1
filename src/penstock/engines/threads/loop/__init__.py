"""The loop of a stream thread and its tasks: fetch, process, write, commit."""
