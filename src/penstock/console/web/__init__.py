"""The console's server: pages that are rendered here, and streams that keep open pages up to date.

Reading order: `site` (what the pages read), `page` (what a page is), `rendering` (templates), `live` (streams),
`application` (routes and headers), `server`.
"""

from __future__ import annotations

__all__: list[str] = []
