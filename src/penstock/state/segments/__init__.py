"""Segments: the files that hold the committed changes of a task.

Reading order: `segment` (what a file holds), `storage` (where files are), `local_storage` and `object_storage`, then
`chain` and `merging`, which read several of them.
"""

__all__: list[str] = []
