"""Tests of connectors: each step of a task's delivery in the test's hands, crashes between the steps included."""

from penstock.connect.delivery import Step
from penstock.connect.testing.driver import ConnectTestDriver
from penstock.connect.testing.source_check import SourceFaultError, SourceModel

__all__ = ["ConnectTestDriver", "SourceFaultError", "SourceModel", "Step"]
