"""The web console: what an application does, the topics, groups and stores of a log, in a browser.

Reading order: `recorder` (an application's figures, kept in its checkpoint), `app_view` (what the pages read from them,
and where to look first), `alerts` (conditions over them), then `web` (the server and its pages).
"""

from __future__ import annotations

__all__: list[str] = []
