"""Consumer groups as they are administered: members, offsets, lag, resets."""
