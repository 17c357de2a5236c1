"""The JSON interface of the console, below ``/api/v1``: what its pages show, and what they may change.

Reading order: `endpoints` (which addresses there are), `applications` and `topic_endpoints` (what they answer),
`streams` (events), `writes` (what changes something).
"""

from __future__ import annotations

__all__: list[str] = []
