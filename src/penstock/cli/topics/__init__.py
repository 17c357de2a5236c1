"""The commands over topics, records and groups."""
