"""Exactly once in Kafka: ledger, leases, fencing, transactions."""
