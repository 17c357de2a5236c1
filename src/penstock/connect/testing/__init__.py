"""Tests of connectors: each step of a task's delivery in the test's hands, crashes between the steps included."""

from penstock.connect.delivery import Step
from penstock.connect.testing.driver import ConnectTestDriver

__all__ = ["ConnectTestDriver", "Step"]
