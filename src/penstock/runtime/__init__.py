"""StreamTask and one operator per operation; never imports Spark."""
