"""`penstock simulate`, an application under faults, and `penstock replay`, records of production again."""
