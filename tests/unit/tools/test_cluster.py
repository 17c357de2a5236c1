"""Brokers that are one cluster: each knows all controllers, and topics have replicas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.tools.broker.broker_settings import load_settings
from penstock.tools.broker.process import BrokerCluster


def test_three_brokers_are_one_cluster(tmp_path: Path) -> None:
    cluster = BrokerCluster(tmp_path)
    properties = [broker.settings.properties() for broker in cluster.brokers]
    assert [each["node.id"] for each in properties] == ["1", "2", "3"]
    assert len({each["controller.quorum.voters"] for each in properties}) == 1
    assert properties[0]["controller.quorum.voters"].startswith("1@127.0.0.1:")
    assert {broker.settings.cluster_id for broker in cluster.brokers} == {cluster.brokers[0].settings.cluster_id}
    assert {each["default.replication.factor"] for each in properties} == {"3"}
    assert {each["transaction.state.log.min.isr"] for each in properties} == {"2"}
    ports = {port for each in cluster.brokers for port in (each.settings.port, each.settings.controller_port)}
    assert len(ports) == 6
    assert cluster.broker(2).settings.bootstrap_servers in cluster.bootstrap_servers


def test_settings_are_kept(tmp_path: Path) -> None:
    one = BrokerCluster(tmp_path).broker(3).settings
    kept = replace(one, directory=tmp_path)
    kept.save()
    assert load_settings(tmp_path) == kept


def test_a_broker_alone_has_no_replicas(tmp_path: Path) -> None:
    alone = replace(BrokerCluster(tmp_path, 1).broker(1).settings, controller_ports=(), cluster_id="")
    properties = alone.properties()
    assert properties["controller.quorum.voters"] == f"1@127.0.0.1:{alone.controller_port}"
    assert properties["default.replication.factor"] == properties["transaction.state.log.min.isr"] == "1"
