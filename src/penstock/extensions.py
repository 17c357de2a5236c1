"""What extensions of Penstock are made of; see docs/how-to/extensions.md.

| extension point | group of entry points | an extension is |
| --- | --- | --- |
| `APPLICATIONS` | ``penstock.applications`` | a subclass of `ApplicationExtension` |
| `LANGUAGES` | ``penstock.languages`` | a `Language` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.api.builder import LANGUAGES, Language
    from penstock.base.extension_points import ExtensionPoint
    from penstock.engines.extensions import APPLICATIONS, ApplicationExtension, ApplicationHandle
    from penstock.serving import Beside

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
        "APPLICATIONS": "engines.extensions",
        "ApplicationExtension": "engines.extensions",
        "ApplicationHandle": "engines.extensions",
        "Beside": "serving",
        "ExtensionPoint": "base.extension_points",
        "LANGUAGES": "api.builder",
        "Language": "api.builder",
    },
)
