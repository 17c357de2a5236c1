"""The names of what is secret, and the masking of passwords in displayed texts."""

from __future__ import annotations

import re

__all__ = ["NAMES_OF_SECRETS", "without_passwords"]

NAMES_OF_SECRETS = (  # a file that has a key, and the address that issues tokens, are none
    r"password|passwd|passphrase|authorization|secret|credential|cookie|token(?![._-]endpoint)|jwt"
    r"|(?:api|access|account|private|shared|signing|encryption|subscription)[._-]?key(?![._-](?:file|location|path))"
)
"""A pattern of words in the names of settings, headers and parameters whose values nobody may read."""

# A password may have an @ in it; a slash, a question mark or a number sign ends the part of a URL that has it.
_USER_INFO = re.compile(r"""(?<=://)([^/?#@\s:"']*):[^/?#\s"']*@""")
# `sig` is that of signed addresses of Azure, `key` that of Google's interfaces: a short one is a key of something else.
_PARAMETER = re.compile(
    rf"""([?&;](?:[\w.-]*(?:{NAMES_OF_SECRETS}|signature)[\w.-]*|pwd|pass|sig|auth|key(?==[^&;\s"']{{16}}))=)[^&;\s"'#]+""",
    re.IGNORECASE,
)


def without_passwords(text: str) -> str:
    """Replace passwords and tokens in URLs by stars: before the host, and in parameters.

    >>> without_passwords("http://ann:s@cret@localhost:8081 does not answer")
    'http://ann:***@localhost:8081 does not answer'
    >>> without_passwords("jdbc:postgresql://db/shop?user=ann&password=secret&ssl=true")
    'jdbc:postgresql://db/shop?user=ann&password=***&ssl=true'
    >>> without_passwords("https://api.example/orders?token=abc&page=2")
    'https://api.example/orders?token=***&page=2'
    """
    if "://" not in text:
        return text
    return _PARAMETER.sub(r"\1***", _USER_INFO.sub(r"\1:***@", text))
