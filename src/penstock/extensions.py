"""What extensions of Penstock are made of; see docs/how-to/extensions.md.

| extension point | group of entry points | an extension is |
| --- | --- | --- |
| `APPLICATIONS` | ``penstock.applications`` | a subclass of `ApplicationExtension` |
| `LANGUAGES` | ``penstock.languages`` | a `Language` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.api.languages import LANGUAGES, Language
    from penstock.extension_points import ExtensionPoint
    from penstock.serving import Beside
    from penstock.spark.driver.extensions import APPLICATIONS, ApplicationExtension, ApplicationHandle

__all__ = [
    "APPLICATIONS",
    "LANGUAGES",
    "ApplicationExtension",
    "ApplicationHandle",
    "Beside",
    "ExtensionPoint",
    "Language",
]

__getattr__ = lazy_names(
    "penstock",
    {
        "APPLICATIONS": "spark.driver.extensions",
        "ApplicationExtension": "spark.driver.extensions",
        "ApplicationHandle": "spark.driver.extensions",
        "Beside": "serving",
        "ExtensionPoint": "extension_points",
        "LANGUAGES": "api.languages",
        "Language": "api.languages",
    },
)
