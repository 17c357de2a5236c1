"""Java's ways with text: regular expressions, patterns of dates, numbers."""
