"""`penstock simulate`: an application under faults."""
