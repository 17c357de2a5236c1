"""Windows, windowed aggregations and suppression."""
