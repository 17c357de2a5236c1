"""State stores: byte maps, typed views, segments."""
