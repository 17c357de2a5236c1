"""Whole applications in one process, with their threads, machines, brokers and clock, from one seed."""
