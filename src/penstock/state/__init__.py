"""State stores: byte maps, typed views, segments.

Reading order: `base` (the seam), `memory` (stores of the test driver), `views` (what operators see); then what carries
state through crashes: `segments` (the file), `storage` (where files are), `replica` (LMDB), `overlay` (one batch's
writes), `recovery`, `snapshots`, and `task_store`, which puts them together.
"""
