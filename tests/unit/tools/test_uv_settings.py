"""uv asks the indexes that pip's settings name, as `make setup` does; or pip installs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from uv_settings import OtherSettingError, options_of, uv_environment

LISTED = """\
:env:.find-links='/nowhere /opt'
:env:.timeout='180'
global.extra-index-url='\\nhttps://one/simple\\nhttps://two/simple'
global.index-url='https://far/simple'
global.quiet='1'
install.index-url='https://near/simple'
install.no-index='false'
list.format='json'
"""
BEST = {"UV_INDEX_STRATEGY": "unsafe-best-match"}


def test_the_setting_that_pip_follows_counts() -> None:
    assert options_of(LISTED)["index-url"] == "https://near/simple"
    assert "format" not in options_of(LISTED)


def test_uv_gets_indexes_folders_and_times(tmp_path: Path) -> None:
    options = options_of(LISTED) | {"find-links": f"/nowhere-at-all {tmp_path} https://links"}
    assert uv_environment(options, {}) == BEST | {
        "UV_DEFAULT_INDEX": "https://near/simple",
        "UV_INDEX": "https://one/simple https://two/simple",
        "UV_FIND_LINKS": f"{tmp_path},https://links",
        "UV_HTTP_TIMEOUT": "180",
    }


def test_what_the_environment_tells_uv_stays() -> None:
    given = {"UV_DEFAULT_INDEX": "https://own/simple", "UV_INDEX_STRATEGY": "first-index"}
    assert uv_environment({"index-url": "https://far/simple"}, given) == {}


def test_certificates_are_those_of_pip() -> None:
    assert uv_environment({"cert": "/ca.pem"}, {"REQUESTS_CA_BUNDLE": "/other.pem"}) == BEST | {
        "SSL_CERT_FILE": "/ca.pem"
    }
    assert uv_environment({}, {"REQUESTS_CA_BUNDLE": "/other.pem"}) == BEST | {"SSL_CERT_FILE": "/other.pem"}


def test_switches_have_uvs_words() -> None:
    assert uv_environment({"no-index": "yes", "pre": "1"}, {}) == BEST | {"UV_NO_INDEX": "1", "UV_PRERELEASE": "allow"}


def test_pip_installs_where_uv_has_no_word() -> None:
    with pytest.raises(OtherSettingError, match="only-binary"):
        uv_environment({"only-binary": ":all:"}, {})
