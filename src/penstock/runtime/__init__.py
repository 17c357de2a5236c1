"""The task that runs a part of a topology over batches, and one operator per operation; never imports Spark."""
