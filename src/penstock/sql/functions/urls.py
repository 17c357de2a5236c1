"""Functions of URLs."""

from __future__ import annotations

import re
from urllib.parse import quote_plus, unquote, unquote_plus

from penstock.sql.functions.registry import Family
from penstock.sql.types import SqlValueError

__all__ = ["URLS"]

URLS = Family("urls")
EXAMPLE = "https://ann@example.org:8080/a/b?q=x%20y&n=1#top"
URL = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?")
ILLEGAL = re.compile(r"[\s<>\"{}|\\^`]|%(?![0-9A-Fa-f]{2})")
HOST = re.compile(r"(?:[^@]*@)?(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::([0-9]{0,9}))?")


def _parts(url: str) -> tuple[str | None, str | None, str | None, str | None, str | None]:
    match = URL.fullmatch(url)
    if match is None or ILLEGAL.search(url):
        raise SqlValueError(f"{url!r} is not a URL")
    if match[1] is not None and match[2] is None and not match[3].startswith("/"):
        return match[1], None, None, None, match[5]  # as mailto:ann@example.org, which has neither path nor query
    return match[1], match[2], match[3], match[4], match[5]


def _decoded(part: str | None) -> str | None:
    return None if part is None else unquote(part)


@URLS.scalar("URL_EXTRACT_PROTOCOL(url STRING) STRING", examples=[(f"URL_EXTRACT_PROTOCOL('{EXAMPLE}')", "'https'")])
def url_extract_protocol(url: str) -> str | None:
    """The protocol of a URL."""
    return _parts(url)[0]


@URLS.scalar("URL_EXTRACT_HOST(url STRING) STRING", examples=[(f"URL_EXTRACT_HOST('{EXAMPLE}')", "'example.org'")])
def url_extract_host(url: str) -> str | None:
    """The host of a URL."""
    match = HOST.fullmatch(_parts(url)[1] or "")
    return match[1] or None if match else None


@URLS.scalar("URL_EXTRACT_PORT(url STRING) INTEGER", examples=[(f"URL_EXTRACT_PORT('{EXAMPLE}')", "8080")])
def url_extract_port(url: str) -> int | None:
    """The port of a URL; null if it names none."""
    match = HOST.fullmatch(_parts(url)[1] or "")
    return int(match[2]) if match and match[2] else None


@URLS.scalar("URL_EXTRACT_PATH(url STRING) STRING", examples=[(f"URL_EXTRACT_PATH('{EXAMPLE}')", "'/a/b'")])
def url_extract_path(url: str) -> str | None:
    """The path of a URL."""
    return _decoded(_parts(url)[2])


@URLS.scalar("URL_EXTRACT_QUERY(url STRING) STRING", examples=[(f"URL_EXTRACT_QUERY('{EXAMPLE}')", "'q=x y&n=1'")])
def url_extract_query(url: str) -> str | None:
    """The query of a URL."""
    return _decoded(_parts(url)[3])


@URLS.scalar("URL_EXTRACT_FRAGMENT(url STRING) STRING", examples=[(f"URL_EXTRACT_FRAGMENT('{EXAMPLE}')", "'top'")])
def url_extract_fragment(url: str) -> str | None:
    """The fragment of a URL, which follows ``#``."""
    return _decoded(_parts(url)[4])


@URLS.scalar(
    "URL_EXTRACT_PARAMETER(url STRING, name STRING) STRING",
    examples=[(f"URL_EXTRACT_PARAMETER('{EXAMPLE}', 'n')", "'1'")],
)
def url_extract_parameter(url: str, name: str) -> str | None:
    """A parameter of a URL's query; null if it is not there, empty if it has no value."""
    query = url_extract_query(url)
    for part in () if query is None else query.split("&"):
        key, _, value = part.partition("=")
        if key == name:
            return value
    return None


@URLS.scalar("URL_ENCODE_PARAM(text STRING) STRING", examples=[("URL_ENCODE_PARAM('a b&c')", "'a+b%26c'")])
def url_encode_param(text: str) -> str:
    """A text as it may stand in the query of a URL."""
    return quote_plus(text, safe="*").replace("~", "%7E")


@URLS.scalar("URL_DECODE_PARAM(text STRING) STRING", examples=[("URL_DECODE_PARAM('a%20b%26c')", "'a b&c'")])
def url_decode_param(text: str) -> str:
    """A text out of the query of a URL."""
    if re.search("%(?![0-9A-Fa-f]{2})", text):
        raise SqlValueError(f"{text!r} is not encoded as a parameter")
    return unquote_plus(text)
