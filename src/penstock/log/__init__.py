"""Topic logs: the seam, and the embedded log."""
