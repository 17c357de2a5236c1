"""The commands of Connect and of the mirror."""
