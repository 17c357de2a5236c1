"""A topology as text, chart and picture."""
