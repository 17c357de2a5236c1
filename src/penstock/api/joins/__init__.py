"""The join verbs of streams and tables, and the nodes that they add to a topology."""
