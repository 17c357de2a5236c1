"""Workers seen from outside, by their REST interface: configs of a folder applied, records of a connector shown."""

from penstock.connect.client.plan import Change, Plan, make_plan
from penstock.connect.client.rest_client import ConnectClient
from penstock.connect.client.tap import Tap

__all__ = ["Change", "ConnectClient", "Plan", "Tap", "make_plan"]
