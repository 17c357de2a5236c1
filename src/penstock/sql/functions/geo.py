"""Distances on the earth."""

from __future__ import annotations

from math import asin, cos, radians, sin, sqrt

from penstock.sql.functions.registry import Family
from penstock.sql.types import SqlValueError

__all__ = ["GEO"]

GEO = Family("geo")
RADIUS_KM, RADIUS_MILES = 6371, 3959
KILOMETRES, MILES = ("km", "kilometer", "kilometers", "kilometre", "kilometres"), ("mi", "mile", "miles")


@GEO.scalar(
    "GEO_DISTANCE(lat1 DOUBLE, lon1 DOUBLE, lat2 DOUBLE, lon2 DOUBLE) DOUBLE",
    examples=[("ROUND(GEO_DISTANCE(52.52E0, 13.40E0, 48.86E0, 2.35E0))", "877")],
)
def geo_distance(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    """The distance of two points in degrees along the great circle, in kilometres or, with ``'MI'``, miles."""
    return _angle(lat1, lon1, lat2, lon2) * RADIUS_KM


@GEO.scalar("GEO_DISTANCE(lat1 DOUBLE, lon1 DOUBLE, lat2 DOUBLE, lon2 DOUBLE, unit STRING) DOUBLE", nulls=True)
def geo_distance_in(lat1: float, lon1: float, lat2: float, lon2: float, unit: str | None) -> float | None:
    if None in (lat1, lon1, lat2, lon2):
        return None
    unit_name = (unit or "").strip().lower() or "km"
    if unit_name not in (*KILOMETRES, *MILES):
        raise SqlValueError(f"{unit!r} is not a unit of distance: use one of {', '.join((*KILOMETRES, *MILES))}")
    return _angle(lat1, lon1, lat2, lon2) * (RADIUS_MILES if unit_name in MILES else RADIUS_KM)


def _angle(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    if not all(-90 <= latitude <= 90 for latitude in (lat1, lat2)):
        raise SqlValueError(f"latitudes must be from -90 to 90: {lat1}, {lat2}")
    if not all(-180 <= longitude <= 180 for longitude in (lon1, lon2)):
        raise SqlValueError(f"longitudes must be from -180 to 180: {lon1}, {lon2}")
    north, east = radians(lat2 - lat1), radians(lon2 - lon1)
    half = sin(north / 2) ** 2 + sin(east / 2) ** 2 * cos(radians(lat1)) * cos(radians(lat2))
    return 2 * asin(min(1.0, sqrt(half)))
