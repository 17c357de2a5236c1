"""State stores: byte maps, typed views, segments.

Reading order: `maps` (stores in memory, and overlays: the writes of one batch), `views` (what operators see); then what
carries state through crashes: `lmdb_replicas` (LMDB, where Kafka Streams has RocksDB), `changelog` (topics), `segments`
(files and where they are), `restores`, `snapshots`, and `task_store`, which puts them together.
"""
