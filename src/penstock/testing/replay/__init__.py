"""Records of production processed again, with the state of their moment."""
