"""The `penstock` command."""
