"""The libraries of the extra ``query``: HTTP is not needed by those who query in their own process."""

from __future__ import annotations

from penstock.errors import EnvironmentProblemError

__all__ = ["require_web"]


def require_web() -> None:
    """Raises EnvironmentProblemError unless the libraries of the extra ``query`` are installed."""
    try:
        import fastapi  # noqa: F401
        import httpx  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise EnvironmentProblemError(
            f"queries over HTTP need {error.name}, which is not installed",
            hint='Install it with: pip install "penstock[query]"',
        ) from error
