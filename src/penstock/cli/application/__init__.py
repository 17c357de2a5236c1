"""The commands over one application."""
