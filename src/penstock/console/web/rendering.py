"""Pages from templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from penstock.base.escapes import visible
from penstock.base.version import __version__
from penstock.console.web.page import NotThereError, Page, Visit
from penstock.console.web.template_filters import FILTERS
from penstock.errors import PenstockError

__all__ = ["Renderer"]

# Path, title and key (after g) of the pages in the head.
MENU = (
    ("/", "Overview", "o"),
    ("/topology", "Topology", "t"),
    ("/batches", "Batches", "b"),
    ("/tasks", "Tasks", "k"),
    ("/topics", "Topics", "p"),
    ("/groups", "Groups", "g"),
    ("/stores", "Stores", "s"),
    ("/errors", "Errors", "e"),
)
_IN_PATHS = "/:@!$&'()*+,;=~"
CONNECTORS, SQL = ("/connectors", "Connectors", "c"), ("/sql", "SQL", "q")


def _finalized(value: Any) -> Any:
    """Return a value of a template as it is shown; what templates themselves have made is done."""
    return visible(value) if type(value) is str else value


class Renderer:
    """The templates of the console; all values are escaped, and characters that no page shows are visible.

    Args:
        root: The prefix of its addresses.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._environment = Environment(
            loader=PackageLoader("penstock.console.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            finalize=_finalized,
        )
        self._environment.filters |= FILTERS

    def body(self, page: Page, visit: Visit) -> str:
        """Render what changes of a page, without its frame; an error of the user becomes a note in it."""
        try:
            facts = page.build(visit)
        except NotThereError:
            raise
        except PenstockError as error:
            return self._render("problem", visit, {"error": visit.site.exposure.error(error)})
        return self._render(page.name, visit, facts)

    def whole(self, page: Page, visit: Visit) -> str:
        """Render a page with its frame."""
        body = self.body(page, visit)
        return self._render("frame", visit, {"page": page, "body": body, **self._frame(page, visit)})

    def problem(self, visit: Visit, error: PenstockError) -> str:
        """Render a page that says what is wrong."""
        body = self._render("problem", visit, {"error": error})
        page = Page("problem", "Not found", lambda _: {})
        return self._render("frame", visit, {"page": page, "body": body, **self._frame(page, visit)})

    def _frame(self, page: Page, visit: Visit) -> dict[str, Any]:
        names = visit.site.applications.names()
        chosen = visit.application_name
        is_continuous = bool(chosen in names and visit.site.applications.get(chosen).picture().is_continuous)
        return {
            "names": names,
            "chosen": chosen,
            "title": "Threads" if is_continuous and page.name == "batches" else page.title,
            "menu": (
                *(
                    (path, "Threads" if is_continuous and path == "/batches" else title, key)
                    for path, title, key in MENU
                ),
                *([CONNECTORS] if visit.site.connectors is not None else []),
                *([SQL] if visit.site.statements is not None else []),
            ),
            "permissions": visit.site.permissions,
            "version": __version__,
            "identity": visit.site.identity,
            "has_log": visit.site.log is not None,
        }

    def _render(self, name: str, visit: Visit, facts: Mapping[str, Any]) -> str:
        def url(path: str, **parameters: Any) -> str:
            """Return the address of a page, for the same application."""
            chosen = {"app": visit.get("app"), **parameters}
            given = {key: value for key, value in chosen.items() if value not in ("", None)}
            return f"{self._root}{quote(path, safe=_IN_PATHS)}" + (f"?{urlencode(given)}" if given else "")

        template = self._environment.get_template(f"{name}.html")
        return template.render(**facts, url=url, root=self._root, visit=visit)
