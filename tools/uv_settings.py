"""Prints pip's settings as NAME=VALUE for uv's environment: it asks the same indexes, with the same certificates.

Ends with status 1, and says why, where pip has a setting that uv has no word for: pip installs then (tools/setup_venv).
It runs before anything is installed, so it needs Python alone.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping

__all__ = ["OtherSettingError", "options_of", "uv_environment"]

# pip's option: the variable for uv, and what stands there between several values.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", ""),
    "pre": ("UV_PRERELEASE", ""),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", ""),
    "client-cert": ("SSL_CLIENT_CERT", ""),
    "proxy": ("ALL_PROXY", ""),
    "timeout": ("UV_HTTP_TIMEOUT", ""),
    "default-timeout": ("UV_HTTP_TIMEOUT", ""),
    "retries": ("UV_HTTP_RETRIES", ""),
}
_SWITCHES = {"no-index": "1", "pre": "allow"}
# With these uv installs the same.
_ALIKE = frozenset({
    "break-system-packages", "cache-dir", "compile", "disable-pip-version-check", "no-cache-dir", "no-color",
    "no-compile", "no-input", "no-python-version-warning", "no-warn-conflicts", "no-warn-script-location",
    "prefer-binary", "progress-bar", "quiet", "require-virtualenv", "root-user-action", "verbose",
})  # fmt: skip
_OFF = frozenset({"", "0", "false", "no", "off"})


class OtherSettingError(Exception):
    """pip has a setting that uv has no word for."""


def options_of(listed: str) -> dict[str, str]:
    """Return the options of `pip install` from what `pip config list` prints."""
    options = {}
    for section in ("global", "install", ":env:"):  # the later counts
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{section}."):
                options[name.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return options


def uv_environment(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for uv, without those that the environment has.

    Raises:
        OtherSettingError: There is an option that uv cannot follow.
    """
    chosen = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # as pip: the newest version of all indexes
    for option, value in options.items():
        if option in _ALIKE or value.strip().lower() in _OFF:
            continue
        if option not in _VARIABLES:
            raise OtherSettingError(f"pip has the setting {option}, for which uv has no word")
        variable, between = _VARIABLES[option]
        parts = [_SWITCHES.get(option, value.strip())] if not between else value.split()
        if option == "find-links":  # pip passes over folders that are not there
            parts = [each for each in parts if "://" in each or os.path.exists(each)]  # noqa: PTH110 - or file:...
        if parts:
            chosen[variable] = between.join(parts)
    if bundle := environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE"):  # pip reads them, too
        chosen.setdefault("SSL_CERT_FILE", bundle)
    return {name: value for name, value in chosen.items() if name not in environment}


def main() -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    try:
        chosen = uv_environment(options_of(listed), os.environ)
    except OtherSettingError as reason:
        sys.exit(str(reason))
    print(*(f"{name}={value}" for name, value in chosen.items()), sep="\n")


if __name__ == "__main__":
    main()
