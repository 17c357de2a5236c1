"""Health of what a console shows, for load balancers and Prometheus."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.console.alerts import alert_lines
from penstock.console.web.page import Visit
from penstock.metrics.prometheus import label_text
from penstock.serving.json_interface import EscapedJson

__all__ = ["health", "metrics", "ready"]


def health(visit: Visit) -> Any:
    """Return the state and alerts of each application; 503 if one is stuck, has failed, or has died."""
    applications = []
    for name in visit.site.applications.names():
        picture = visit.site.application(name).picture()
        applications.append({"application": name, "state": picture.state, "alerts": list(picture.get("alerts", ()))})
    is_ill = any(
        alert["name"] in ("failed", "died", "stuck", "silent") for each in applications for alert in each["alerts"]
    )
    return EscapedJson({"healthy": not is_ill, "applications": applications}, 503 if is_ill else 200)


def ready(visit: Visit) -> Any:
    """Return whether the log answers."""
    if visit.site.log is not None:
        visit.site.log.topics()
    return {"ready": True}


def metrics(visit: Visit) -> Any:
    """Return the alerts and lag of all applications in Prometheus' text format."""
    lines, lags = (
        [],
        ["# HELP penstock_lag_records Records of the partition that wait.", "# TYPE penstock_lag_records gauge"],
    )
    for name in visit.site.applications.names():
        picture = visit.site.application(name).picture()
        lines += alert_lines(name, picture.get("alerts", ())).splitlines()
        lags += [
            f'penstock_lag_records{{application="{label_text(name)}",partition="{label_text(each.name)}"}} {each.lag}'
            for each in picture.partitions
        ]
    text = "\n".join([*dict.fromkeys(lines), *lags, ""])  # the line of the type once
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
