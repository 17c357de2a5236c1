"""`ConnectTestDriver.check_source`: right sources pass, and each kind of wrong one is caught with its shortest schedule."""

import itertools
import os
import tempfile
from collections import deque
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.connect.api import SourceConnector, SourceTask
from penstock.connect.connectors.file_stream import FileStreamSourceConnector
from penstock.connect.data import SourceRecord
from penstock.connect.functions import Record, source
from penstock.connect.testing import ConnectTestDriver, SourceFaultError
from penstock.errors import ConfigError, ConnectError

LETTERS = {"letters": "abcde"}
AT_LEAST_ONCE = {"exactly_once": False}


@source("Letters", topic=str)
def letters(settings, offsets):
    for at in range(offsets.get({}, {"next": 0})["next"], 5):
        yield [Record(settings.topic, "abcde"[at], partition={}, offset={"next": at + 1})]
        yield 0


def checked(connector, values=LETTERS, *, driver=(), **options):
    def make():
        return ConnectTestDriver(connector, {"topic": "out"}, **dict(driver))

    ConnectTestDriver.check_source(make, values, runs=5, **options)


def fault_of(connector, values=LETTERS, **options):
    with pytest.raises(SourceFaultError) as caught:
        checked(connector, values, **options)
    return caught.value


@pytest.mark.parametrize("driver", [{}, AT_LEAST_ONCE], ids=["exactly once", "at least once"])
def test_a_source_function_passes(driver):
    checked(letters, driver=driver)


def test_at_least_once_doubles_only_where_a_task_crashes_between_records_and_offsets():
    drivers = [ConnectTestDriver(letters, {"topic": "out"}, exactly_once=False) for _ in range(2)]
    for driver, crash, values in zip(drivers, ("WRITTEN", "COMMITTED"), ("abbcde", "abcde"), strict=True):
        ConnectTestDriver.check_source(iter([driver]).__next__, LETTERS, schedule=["poll", f"crash {crash}"])
        assert [record.value for record in driver.read("out")] == list(values)


class Listed(SourceTask):
    """A task that goes through a list, right by itself."""

    java_class = "ListedTask"
    values: ClassVar = "abcde"

    def start(self, settings):
        self.topic = settings["topic"]
        self.at = self.first()

    def first(self):
        stored = self.context.offset_reader.offset({"of": "list"})
        return stored["next"] if stored else 0

    def poll(self):
        if self.at == len(self.values):
            return []
        self.at += 1
        return [self.record(self.values[self.at - 1], {"next": self.at})]

    def record(self, value, offset):
        return SourceRecord(topic=self.topic, value=value, source_partition={"of": "list"}, source_offset=offset)


def connector_of(task, tasks=1):
    class Source(SourceConnector):
        java_class, task_class = f"{task.__name__}Source", task

        def task_configs(self, max_tasks):
            return [{}] * min(tasks, max_tasks)

    return Source


def test_a_task_of_the_class_api_passes():
    checked(connector_of(Listed))


def test_a_source_that_commits_before_it_sends_loses_records():
    class Forward(Listed):
        committed: ClassVar = {}

        def first(self):
            return self.committed.get("next", 0)

        def poll(self):
            records = super().poll()
            self.committed["next"] = self.at  # as an acknowledgement to a queue at once
            return records

    def make():
        Forward.committed = {}
        return ConnectTestDriver(connector_of(Forward), {"topic": "out"})

    with pytest.raises(SourceFaultError) as caught:
        ConnectTestDriver.check_source(make, LETTERS)
    assert (caught.value.kind, caught.value.schedule) == ("lost", ("crash POLLED",))
    assert 'lost "a"' in str(caught.value)
    with pytest.raises(SourceFaultError, match="lost"):
        ConnectTestDriver.check_source(make, LETTERS, schedule=caught.value.schedule)


def test_a_source_that_stores_the_position_before_a_record_doubles_it():
    class Behind(Listed):
        def record(self, value, offset):
            return super().record(value, {"next": offset["next"] - 1})

    assert fault_of(connector_of(Behind)).kind == "doubled"
    fault = fault_of(connector_of(Behind), driver=AT_LEAST_ONCE)  # a clean restart is no reason for a double
    assert (fault.kind, fault.schedule) == ("doubled", ())


def test_a_source_whose_tasks_share_a_partition_doubles_its_records():
    fault = fault_of(connector_of(Listed, tasks=3))
    assert (fault.kind, fault.schedule) == ("doubled", ("rebalance 2",))


def test_a_source_that_mixes_up_a_batch_is_caught():
    class Reversed(Listed):
        def poll(self):
            return [*super().poll(), *super().poll()][::-1]

    fault = fault_of(connector_of(Reversed), {"list": "abcde"})
    assert fault.kind in ("order", "doubled", "lost")
    assert fault_of(connector_of(Reversed), schedule=[]).kind == "order"


def test_a_source_that_takes_one_acknowledgement_for_another_is_caught():
    class Queued(Listed):
        """Takes the head off its queue at each acknowledgement, whichever record it is of."""

        queue: ClassVar = deque()

        def start(self, settings):
            self.topic = settings["topic"]
            self.sent = 0

        def poll(self):
            waiting = list(self.queue)[max(self.sent, 0) :][:1]
            self.sent += len(waiting)
            return [self.record(value, {"sent": 1}) for value in waiting]

        def commit_record(self, record, delivery):
            if self.queue:
                self.queue.popleft()
                self.sent -= 1

    def make():
        Queued.queue = deque("abcde")
        return ConnectTestDriver(connector_of(Queued), {"topic": "out"}, exactly_once=False)

    with pytest.raises(SourceFaultError) as caught:
        ConnectTestDriver.check_source(make, LETTERS)
    assert (caught.value.kind, caught.value.schedule) == ("lost", ("acknowledge twice",))


def test_records_that_the_model_lacks_and_sources_without_end_are_caught():
    class Endless(Listed):
        def poll(self):
            self.at += 1
            return [self.record(self.at, {"next": self.at})]

    assert fault_of(connector_of(Listed), {"list": "abcd"}).kind == "unknown"
    assert fault_of(connector_of(Endless), {"list": "a"}).kind == "endless"


def test_models_and_schedules_that_say_nothing_are_refused():
    with pytest.raises(ValueError, match="'a' twice"):
        checked(letters, {"letters": "aa"})
    with pytest.raises(ValueError, match="'jump' is not an event of a schedule: change, poll, crash POLLED"):
        checked(letters, schedule=["jump"])


def test_an_error_of_the_source_tells_the_schedule():
    class Fragile(Listed):
        def start(self, settings):
            super().start(settings)
            if self.at:
                raise ConnectError("cannot go on")

    with pytest.raises(ConnectError, match="cannot go on") as caught:
        checked(connector_of(Fragile))
    assert caught.value.__notes__ == ["after: nothing but polls"]


class RotatedLog:
    """A log to which lines are written, and which is renamed now and then, once the source knows it."""

    def __init__(self, driver):
        self.driver, self.path = driver, Path(driver.config["file"])
        self.lines, self.turns, self.clock = [], 0, 1_700_000_000
        self.rotated = 0

    def change(self):
        self.turns += 1
        if self.turns > 6:
            return False
        if self.turns % 2 == 0 and self.driver.offsets():
            self.rotated += 1
            for number in range(self.rotated - 1, 0, -1):
                self.path.with_suffix(f".{number}").rename(self.path.with_suffix(f".{number + 1}"))
            self.path.rename(self.path.with_suffix(".1"))
        with self.path.open("a") as out:
            for _ in range(2):
                self.lines.append(f"line {len(self.lines)}")
                out.write(f"{self.lines[-1]}\n")
        self.clock += 1
        os.utime(self.path, (self.clock, self.clock))
        return True

    def expected(self):
        return {"log": self.lines}


def over_a_log(connector, **options):
    with tempfile.TemporaryDirectory(prefix="checked-") as folder:
        numbers = itertools.count()

        def make():
            own = Path(folder, str(next(numbers)))
            own.mkdir()
            config = {"file": str(own / "app.log"), "topic": "lines", "topic.creation.default.partitions": 1}
            return ConnectTestDriver(connector, config)

        ConnectTestDriver.check_source(make, RotatedLog, **options)


def test_the_file_source_passes_while_its_log_is_rotated():
    over_a_log(FileStreamSourceConnector, runs=10)


def test_a_position_without_the_identity_of_its_file_is_caught():
    @source("Tail", file=str, topic=str)
    def tail(settings, offsets):
        at = offsets.get({"file": settings.file}, {"position": 0})["position"]
        while True:
            path = Path(settings.file)
            for line in path.read_bytes()[at:].splitlines(keepends=True) if path.exists() else ():
                at += len(line)
                text = line.decode().rstrip()
                yield Record(settings.topic, text, partition={"file": settings.file}, offset={"position": at})
            yield 0

    with pytest.raises(SourceFaultError) as caught:
        over_a_log(tail)
    assert caught.value.kind == "lost"


def test_what_is_no_maker_and_what_is_no_model_is_said():
    driver = ConnectTestDriver(letters, {"topic": "out"})
    with pytest.raises(
        ConfigError, match=r"got a ConnectTestDriver in place of a function.*\n.*lambda: ConnectTestDriver"
    ):
        ConnectTestDriver.check_source(driver, LETTERS)
    with pytest.raises(ConfigError, match=r"the model is a list, and not values.*\n.*a list for each part"):
        checked(letters, list("abcde"))


def test_a_connector_of_classes_needs_no_name_of_its_own():
    class Numbers(SourceTask):
        def start(self, settings):
            self.next = (self.context.offset_reader.offset({}) or {"next": 0})["next"]

        def poll(self):
            self.next += 1
            offset = {"next": self.next}
            records = [SourceRecord(topic="out", value=self.next, source_partition={}, source_offset=offset)]
            return records if self.next <= 3 else []

    class NumbersConnector(SourceConnector):
        task_class = Numbers

        def task_configs(self, max_tasks):
            return [{}]

    checked(NumbersConnector, {"numbers": [1, 2, 3]})
    assert (NumbersConnector.java_class, Numbers.java_class) == ("NumbersConnector", "Numbers")


def test_each_class_made_of_one_without_a_name_has_its_own_and_a_name_that_was_said_is_inherited():
    class Rows(SourceTask):
        pass

    class Base(SourceConnector):
        task_class = Rows

    class Orders(Base):
        pass

    class Users(Base):
        pass

    class Logs(FileStreamSourceConnector):
        pass

    assert [each.java_class for each in (Base, Orders, Users)] == ["Base", "Orders", "Users"]
    assert Logs.java_class == FileStreamSourceConnector.java_class
