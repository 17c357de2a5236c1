"""Workers seen from outside, by their REST interface: configs of a folder applied, records of a connector shown."""

from penstock.connect.client.connector_records import Tap
from penstock.connect.client.plan import Plan, PlannedChange, make_plan
from penstock.connect.client.rest_client import ConnectClient

__all__ = ["PlannedChange", "ConnectClient", "Plan", "Tap", "make_plan"]
