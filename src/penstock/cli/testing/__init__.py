"""`penstock simulate` and `penstock replay`: an application under faults, and one record of it once more."""
