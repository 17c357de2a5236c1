"""The pages of the console: which addresses there are, and what each shows."""

from __future__ import annotations

import re

from penstock.console.web.page import Page
from penstock.console.web.pages.application_pages import application_stamp
from penstock.console.web.pages.overview import overview

__all__ = ["PAGES"]

_NAME = r"[^/]{1,249}"

PAGES: tuple[tuple[re.Pattern[str], Page], ...] = tuple(
    (re.compile(form), page) for form, page in (("/", Page("overview", "Overview", overview, 0.5, application_stamp)),)
)
