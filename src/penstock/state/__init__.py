"""State stores: byte maps, typed views, segments.

Reading order: `base` (the seam), `memory` (stores of the test driver), `views` (what operators see); then what carries
state through crashes: `segments` (files and where they are), `replicas` (LMDB), `overlay` (one batch's writes),
`restores`, `snapshots`, and `task_store`, which puts them together.
"""
