"""The benchmark of Spark's real-time mode: four tasks at a thousand records a second, and their latencies."""
