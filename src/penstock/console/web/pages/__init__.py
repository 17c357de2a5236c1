"""The pages of the console: which addresses there are, and what each shows."""

from __future__ import annotations

import re

from penstock.console.web.page import Page
from penstock.console.web.pages.application_pages import application_stamp, overview, topology
from penstock.console.web.pages.batches import batches, errors, tasks
from penstock.console.web.pages.log_pages import group, groups, message, topic, topic_facts, topic_stamp, topics
from penstock.console.web.pages.part_pages import connectors, schemas, sql
from penstock.console.web.pages.stores import store, stores

__all__ = ["PAGES"]

_NAME = r"(?P<name>[^/]{1,249})"

PAGES: tuple[tuple[re.Pattern[str], Page], ...] = tuple(
    (re.compile(form), page)
    for form, page in (
        ("/", Page("overview", "Overview", overview, 0.5, application_stamp)),
        ("/topology", Page("topology", "Topology", topology, 0.5, application_stamp)),
        ("/batches", Page("batches", "Batches", batches, 0.5, application_stamp)),
        ("/tasks", Page("tasks", "Tasks", tasks, 1.0, application_stamp)),
        ("/errors", Page("errors", "Errors", errors, 2.0)),
        ("/stores", Page("stores", "Stores", stores)),
        (f"/stores/{_NAME}", Page("store", "Store", store, 5.0)),
        ("/topics", Page("topics", "Topics", topics)),
        (f"/topics/{_NAME}", Page("topic", "Messages", topic, 1.0, topic_stamp)),
        (f"/topics/{_NAME}/facts", Page("topic_facts", "Topic", topic_facts, 5.0)),
        (rf"/topics/{_NAME}/(?P<number>\d{{1,9}})/(?P<offset>\d{{1,18}})", Page("message", "Message", message, 3600.0)),
        ("/groups", Page("groups", "Groups", groups)),
        (f"/groups/{_NAME}", Page("group", "Group", group)),
        ("/connectors", Page("connectors", "Connectors", connectors, 5.0)),
        ("/schemas", Page("schemas", "Schemas", schemas, 5.0)),
        ("/sql", Page("sql", "SQL", sql, 3600.0)),
    )
)
