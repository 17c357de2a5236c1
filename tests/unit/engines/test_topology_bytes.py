from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import pytest

from penstock import Consumed, Materialized, Produced, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.spark.topology_bytes import pickle_app
from penstock.errors import TopologyError


def test_a_module_with_two_names_is_sent_once(monkeypatch, tmp_path) -> None:
    """As the main module of a process that multiprocessing has spawned: `__main__` and `__mp_main__` are the same one."""
    (tmp_path / "users_program.py").write_text("def shout(text): return text.upper()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import users_program

    monkeypatch.setitem(sys.modules, "users_second_name", users_program)
    builder = StreamsBuilder()
    builder.stream("in", Consumed(value_serde="string")).map_values(users_program.shout).to("out")
    data = pickle_app(builder.build(), StreamsConfig({"application.id": "a"}))
    monkeypatch.delitem(sys.modules, "users_program")
    topology, _ = cloudpickle.loads(data)
    (function,) = [node.operation.fn for node in topology.nodes.values() if hasattr(node, "operation")]
    assert function.fn("a") == "A"


def test_two_applications_may_start_at_once(monkeypatch, tmp_path) -> None:
    """Cloudpickle's list of modules is the process's: the end of one start must not change it under another."""
    (tmp_path / "users_pair.py").write_text("def shout(text): return text.upper()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import users_pair

    other_is_done = threading.Event()

    class Slow:
        """Takes a while to pickle: as long as the other start, if that goes on meanwhile."""

        def __reduce__(self) -> tuple[type, tuple[()]]:
            other_is_done.wait(0.5)
            return (object, ())

    def start(name: str, slow: object) -> bytes:
        builder = StreamsBuilder()
        words = builder.stream("in", Consumed(value_serde="string"))
        words.filter(lambda _, value: value is not slow).map_values(users_pair.shout).to("out")
        return pickle_app(builder.build(), StreamsConfig({"application.id": name}))

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(start, "first", Slow())
        second = threads.submit(start, "second", None)
        second.add_done_callback(lambda _: other_is_done.set())
        pickled = [first.result(), second.result()]
    assert all(b"upper" in data for data in pickled)  # by value, each of them
    assert "users_pair" not in cloudpickle.list_registry_pickle_by_value()


def test_a_module_that_the_user_has_registered_stays_registered(monkeypatch, tmp_path) -> None:
    (tmp_path / "users_choice.py").write_text("def shout(text): return text.upper()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import users_choice

    cloudpickle.register_pickle_by_value(users_choice)
    builder = StreamsBuilder()
    builder.stream("in", Consumed(value_serde="string")).map_values(users_choice.shout).to("out")
    pickle_app(builder.build(), StreamsConfig({"application.id": "a"}))
    cloudpickle.unregister_pickle_by_value(users_choice)  # raises ValueError unless it is registered


class Locked:
    """A serde that workers cannot get."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def serialize(self, value: str) -> bytes:
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


def test_a_serde_that_cannot_be_sent_is_named_with_its_attribute() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(value_serde=Locked())).to("out", Produced(value_serde="string"))
    stored = StreamsBuilder()
    stored.table("in", None, Materialized("names", value_serde=Locked())).to_stream().to("out")
    plain = StreamsBuilder()
    plain.stream("in").to("out")
    for topology, settings, where in (
        (builder.build(), {}, "value serde of "),
        (stored.build(), {}, "value serde of "),
        (plain.build(), {"default.value.serde": Locked()}, "setting default.value.serde"),
    ):
        with pytest.raises(TopologyError, match=r"attribute lock \(lock\) cannot be pickled") as caught:
            pickle_app(topology, StreamsConfig({"application.id": "a", **settings}))
        assert str(caught.value).startswith(f"the {where}")
        assert ", Locked, cannot be sent to workers" in str(caught.value)


def test_a_compiled_struct_goes_with_the_program_that_uses_it(monkeypatch, tmp_path) -> None:
    (tmp_path / "users_state.py").write_text(
        "import struct\nSTATE = struct.Struct('>qq')\ndef packed(value): return STATE.pack(value, 1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import users_state

    builder = StreamsBuilder()
    builder.stream("in", Consumed(value_serde="long")).map_values(users_state.packed).to("out")
    topology, _ = cloudpickle.loads(pickle_app(builder.build(), StreamsConfig({"application.id": "a"})))
    (function,) = [node.operation.fn for node in topology.nodes.values() if hasattr(node, "operation")]
    assert function.fn(7) == bytes(7) + b"\x07" + bytes(7) + b"\x01"
