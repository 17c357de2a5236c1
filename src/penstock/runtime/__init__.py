"""The task that runs a part of a topology over batches, and the operators of all verbs; never imports Spark.

What a verb does is data in `penstock.topology.operations`; its operator here computes it. Reading order: `task`, `rows`
(what operators take and return), `operator` (the base of all), then one of them: `functions` (filters, maps, branches),
`tables`, `aggregate` (also windows), `joins`, `suppress`, `processors` (those of users).
"""
