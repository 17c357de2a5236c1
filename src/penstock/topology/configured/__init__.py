"""What the settings of an application add to a topology: serdes, extractors."""
