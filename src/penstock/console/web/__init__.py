"""The console's server: pages that are rendered here, and streams that keep open pages up to date.

Reading order: `site` (what the pages read), `page` (what a page is), `live` (streams), `application` (routes,
headers, templates), `server`.
"""

from __future__ import annotations

__all__: list[str] = []
