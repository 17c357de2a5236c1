"""Masking of passwords in displayed texts."""

from __future__ import annotations

import re

__all__ = ["without_passwords"]

# A password may have an @ in it; a slash, a question mark or a number sign ends the part of a URL that has it.
_USER_INFO = re.compile(r"""(?<=://)([^/?#@\s:"']*):[^/?#\s"']*@""")
_PARAMETER = re.compile(
    r"""([?&;][\w.-]*(?:password|passwd|pwd|passphrase|secret|api[._-]?key|access[._-]?(?:key|token)|signature)[\w.-]*=)"""
    r"""[^&;\s"']+""",
    re.IGNORECASE,
)


def without_passwords(text: str) -> str:
    """Replace passwords in URLs by stars: before the host, and in parameters.

    >>> without_passwords("http://ann:s@cret@localhost:8081 does not answer")
    'http://ann:***@localhost:8081 does not answer'
    >>> without_passwords("jdbc:postgresql://db/shop?user=ann&password=secret&ssl=true")
    'jdbc:postgresql://db/shop?user=ann&password=***&ssl=true'
    """
    if "://" not in text:
        return text
    return _PARAMETER.sub(r"\1***", _USER_INFO.sub(r"\1:***@", text))
