"""Pages of extensions are served beside the queries of an application."""

from __future__ import annotations

import httpx
import pytest
from starlette.responses import PlainTextResponse

from penstock.errors import ConfigError
from penstock.query.http.server import QueryServer
from penstock.query.http.service import QueryService
from penstock.serving import Beside


def pages(*prefixes: str, **options: object) -> list[Beside]:
    return [Beside(each, PlainTextResponse(each), **options) for each in prefixes]  # type: ignore[arg-type]


def test_pages_of_several_extensions_share_a_port_with_the_queries(state):
    server = QueryServer(QueryService(state), pages=[*pages("/a", "/b"), *pages("/c", methods=frozenset({"POST"}))])
    server.start()
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        assert [http.get(f"{prefix}/x").text for prefix in ("/a", "/b")] == ["/a", "/b"]
        assert http.get("/stores").status_code == 200
        assert http.get("/c/x").status_code == 405
        headers = {"Origin": server.url}
        assert http.post("/c/x", headers=headers).text == "/c"
        assert http.post("/a/x", headers=headers).status_code == 405
    server.close()


def test_pages_that_cannot_share_a_port_are_refused(state):
    with pytest.raises(ConfigError, match="2 extensions serve /a"):
        QueryServer(QueryService(state), pages=pages("/a", "/b", "/a"))
    with pytest.raises(ConfigError, match=r"different headers .*: X-One, X-Two"):
        QueryServer(QueryService(state), pages=[*pages("/a", mark="X-One"), *pages("/b", mark="X-Two")])
