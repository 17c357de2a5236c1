"""The web console: what an application does, the topics, groups and stores of a log, in a browser.

Reading order: `recorder` (an application's figures, kept in its checkpoint), `picture` (what the pages read from them),
`alerts` and `lookout` (judgements over them), then `web` (the server and its pages).
"""

from __future__ import annotations

__all__: list[str] = []
