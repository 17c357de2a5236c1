"""Faults that were mended in stream threads, leases and journals, or are of their kind: each is put back by a change of the source."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from types import FunctionType

from penstock.testing.simulation.application import Layout
from penstock.testing.simulation.faults import Fault, draw
from penstock.testing.simulation.scheduler import dice_of
from penstock.testing.simulation.simulate import layout_of

__all__ = ["MUTANTS", "Mutant"]

LEASES, JOURNAL = "penstock.log.leases", "penstock.sql.session.journal"
RECORD = "penstock.log.kafka.transactions.fenced_record"
LOOP, REPLICAS = "penstock.engines.threads.loop", "penstock.engines.threads.replicas"
HOSTING, ASSIGNMENT = "penstock.engines.threads.hosting", "penstock.engines.threads.assignment"


STATEFUL = ("tables", "windows", "count", "punctuated")


@dataclass(frozen=True)
class Mutant:
    """A fault in production code.

    Attributes:
        name: What it does.
        where: The module, and the function or method in it.
        old: A text of its source.
        new: What stands there with the fault.
        shown_by: The topologies that are tried in turn.
        most_seeds: The number of seeds after which it counts as not found.
        is_shared: Whether two instances are to share the tasks.
        first_seed: A seed that has found it: the search begins there, and goes on where the code has changed since.
        is_of_records: Whether leases and journals show it, see `simulated_records`.
        faults: Draws the faults of a seed.
        layout: Chooses the threads and machines of a seed.
    """

    name: str
    where: tuple[str, str]
    old: str
    new: str
    shown_by: tuple[str, ...] = STATEFUL
    most_seeds: int = 400
    is_shared: bool = False
    first_seed: int = 0
    is_of_records: bool = False
    faults: Callable[[int], list[Fault]] = draw
    layout: Callable[[int], Layout] = layout_of

    def __str__(self) -> str:
        return self.name

    def has_place(self) -> bool:
        """Return whether the text is still in the source."""
        try:
            return self._source().count(self.old) == 1
        except (AttributeError, ImportError):
            return False

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Run with the fault."""
        owner, name = self._owner()
        before = inspect.getattr_static(owner, name)
        source = self._source().replace(self.old, self.new)
        code = "from __future__ import annotations\n" + source[source.index("def ") :]
        scope: dict[str, FunctionType] = {}
        exec(compile(code, f"<{self.name}>", "exec"), sys.modules[self.where[0]].__dict__, scope)
        users = [owner, *_users(before, name)] if isinstance(before, FunctionType) else [owner]
        kind = type(before) if isinstance(before, property) else None
        try:
            for each in users:  # modules that have imported a function, too
                setattr(each, name, kind(scope[name]) if kind else scope[name])
            yield
        finally:
            for each in users:
                setattr(each, name, before)

    def _owner(self) -> tuple[object, str]:
        owner: object = import_module(self.where[0])
        *owners, name = self.where[1].split(".")
        for each in owners:
            owner = getattr(owner, each)
        return owner, name

    def _source(self) -> str:
        owner, name = self._owner()
        found = inspect.getattr_static(owner, name)
        return textwrap.dedent(inspect.getsource(found.fget if isinstance(found, property) else found))


def _users(function: object, name: str) -> list[object]:
    modules = [module for key, module in list(sys.modules.items()) if key.startswith("penstock.")]
    return [module for module in modules if vars(module).get(name) is function]


THREAD, TASK, REPLICA = (f"{LOOP}.stream_thread", "StreamThread"), f"{LOOP}.task", f"{REPLICAS}.task_replica"


def _thread(method: str) -> tuple[str, str]:
    return f"{LOOP}.stream_thread", f"StreamThread.{method}"


def _two_threads_lost(seed: int) -> list[Fault]:
    """Draw a machine that loses power with two threads, and slow answers while the driver fences the one and the other."""
    dice = dice_of("two threads lost", seed)
    at = dice.randint(60, 500)
    slow = [Fault(at + dice.randint(1, 150), "late", round(dice.uniform(0.3, 3.0), 1)) for _ in range(8)]
    return sorted([Fault(at, "power"), *slow])


def _three_threads(_seed: int) -> Layout:
    return Layout(threads=3, machines=2)


def _three_on_one(_seed: int) -> Layout:
    return Layout(threads=3, machines=1)


def _two_with_standbys(_seed: int) -> Layout:
    return Layout(threads=2, machines=2, standbys=1)


def _embedded(seed: int) -> Layout:
    return replace(layout_of(seed), is_embedded=True)


def _none(_seed: int) -> list[Fault]:
    return []


def _full_disks(seed: int) -> list[Fault]:
    """Draw writes that find the disk full, and crashes after which replicas are written by those who follow."""
    dice = dice_of("full disks", seed)
    kinds = ["full", "full", "full", "crash", "crash", "power"]
    return sorted(Fault(dice.randint(40, 700), kind) for kind in kinds)


def _lost_writers(seed: int) -> list[Fault]:
    """Draw crashes of threads, each of which may write what the others of its machine read."""
    dice = dice_of("lost writers", seed)
    return sorted(Fault(dice.randint(80, 600), "crash") for _ in range(4))


def _silent_drivers(seed: int) -> list[Fault]:
    """Draw pauses of processes, longer than the sessions of members."""
    dice = dice_of("silent drivers", seed)
    return sorted(Fault(dice.randint(300, 3_000), "pause", round(dice.uniform(3.1, 6.0), 1)) for _ in range(6))


def _slow_fences(seed: int) -> list[Fault]:
    """Draw threads that are lost while they go on, and answers that come late."""
    dice = dice_of("slow fences", seed)
    kinds = [("cut", 8.0), ("pause", 5.0), ("late", 3.0), ("late", 3.0), ("late", 3.0), ("late", 3.0), ("cut", 8.0)]
    return sorted(Fault(dice.randint(40, 700), kind, round(dice.uniform(1.0, most), 1)) for kind, most in kinds)


MUTANTS = (
    Mutant("records and offsets are committed one after the other", _thread("commit"),
           "following = self._commit.complete(offsets)",
           "following = self._commit.complete({}); self._commit.complete(offsets)", first_seed=7),
    Mutant("offsets are committed before the records", (f"{LOOP}.commit", "Commit.complete"),
           "following = self._producer.commit(offsets)",
           "held = self._producer.collected(); self._producer.replace(()); self._producer.commit(offsets); "
           "self._producer.replace(held); following = self._producer.commit({})", first_seed=4),
    Mutant("what was fetched is committed, not what was processed", (TASK, "ActiveTask.moved"),
           "positions = self.buffers.positions()",
           "positions = {tp: each.fetched for tp, each in self.buffers._buffers.items()}", first_seed=11),
    Mutant("a replica moves on before the log has committed", _thread("commit"),
           'with self._times.step("commit"):\n        following = self._commit.complete(offsets)',
           'for task in touched:\n        task.commit({}, moved[task.id])\n'
           '    with self._times.step("commit"):\n        following = self._commit.complete(offsets)', first_seed=4),
    Mutant("a task is taken over before its last commit shows", _thread("_begin"),
           "self._log.settled_ends(places)", "pass", first_seed=57),
    Mutant("a task that is taken over begins at the beginning", _thread("_begin"),
           "self._log.group_offsets(self._app.application_id, sources) if sources else {}", "{}"),
    Mutant("a first offset that does not show yet is taken for none", _thread("_begin"),
           "self._log.group_offsets(self._app.application_id, sources)", "self._log.group_offsets(self._app.application_id)",
           ("tables",), first_seed=58, faults=_none, layout=_three_on_one),
    Mutant("a task without committed offsets begins at the end", _thread("_start_positions"),
           "self._log.beginning_offsets(missing)", "self._log.end_offsets(missing)"),
    Mutant("a replica that was followed is not brought to the end", _thread("_begin"),
           "replica.restore(log, {**committed, **newer} if newer else committed, self._hooks.on_restore, numbers)",
           "replicas.get(id_) or replica.restore(log, committed, self._hooks.on_restore, numbers)", first_seed=29),
    Mutant("a task moves before its owner has let go of it", (ASSIGNMENT, "Ownership._may_have"),
           "return self._owners.get(task, thread) == thread and task not in self._moving", "return True", first_seed=2),
    Mutant("an old report lets go of a task", (ASSIGNMENT, "Ownership.reported"),
           "and revision >= moving.revision and task not in held", "", first_seed=45),
    Mutant("a record is left out at each restore", (f"{REPLICAS}.restoring", "Restorer._follow"),
           "if at is None else at.following", "if at is None else at.following + 1", first_seed=6),
    Mutant("a restore notes its end with its first piece", (f"{REPLICAS}.restoring", "_pieces"),
           'yield piece, part.column("offset")[0].as_py()', "yield piece, end", ("tables", "windows"), first_seed=148),
    Mutant("the task's numbers are lost with a restore", (f"{REPLICAS}.restoring", "Restorer.run"),
           "inputs=inputs, meta=meta, epoch", "inputs=inputs, meta={}, epoch", ("punctuated", "suppress"), first_seed=6),
    Mutant("a replica is sound whatever was cut off", ("penstock.state.lmdb_replicas.lmdb_replica", "replica_description"),
           '"boot": boot_id()', '"boot": "none"', ("global_table", "tables", "windows"), first_seed=22),
    Mutant("records are merged without waiting for those that lag", (f"{LOOP}.task", "PartitionGroup._counts"),
           "if self._idle_ms > 0 or (self._idle_ms == 0 and self._lags(tp, ends))", "if False", ("tables",), first_seed=2),
    Mutant("a replica notes the position of another partition", (REPLICA, "TaskReplica._moved"),
           "end = following.get(TopicPartition(topic, self._task.partition))", "end = max(following.values(), default=None)", first_seed=5),
    Mutant("records that are still to be read are purged", (f"{LOOP}.commit", "Purger.note"),
           "tp: offset for", "tp: offset + 4 for", ("count",), first_seed=1),
    Mutant("deletions are not in the changelog", (REPLICA, "TaskReplica.changes"),
           "return changelog_parts(self._app, self._task, self.state, self._pending)",
           "return [(t, p, r.filter(r.column('value').is_valid())) "
           "for t, p, r in changelog_parts(self._app, self._task, self.state, self._pending)]", first_seed=3),
    Mutant("a replica is handed over while it is restored", (f"{LOOP}.standby", "StateUpdater._taken"),
           "self._changed.wait_for(lambda: self._working != task)", "pass", first_seed=45),
    Mutant("the tasks of a fenced thread stay in its list", (ASSIGNMENT, "Ownership.fenced"),
           "self._release(task)", "pass", ("stateless",), first_seed=66),
    Mutant("a fetch of a global table notes its end with its first piece", ("penstock.engines.global_store_copy", "CopyWriter.apply"),
           'self._copy.positions[tp] = int(piece[-1].column("offset")[-1].as_py()) + 1',
           'self._copy.positions[tp] = int(piece[-1].column("offset")[-1].as_py()) + 3', ("global_table",), first_seed=60),
    Mutant("a task is given away without a commit", _thread("remove"), "self.commit(leaving=tasks)\n", "pass\n", ("count",), first_seed=1),
    Mutant("the tasks of a lost thread go to nobody", (f"{HOSTING}.epoch", "Epoch.fenced"),
           "self._sharing.fenced(name)", "pass", ("stateless",), first_seed=66),
    Mutant("changes are left out of a commit", _thread("commit"), "if task.is_changed or task.id in last:",
           "if task.is_changed and moved[task.id]:", ("clocked",)),
    Mutant("a lost thread that has come back gets tasks before it is fenced", (f"{HOSTING}.epoch", "Epoch._deliver"),
           "if name in self._fencing:", "if False:", ("stateless",), faults=_two_threads_lost, layout=_three_threads, first_seed=46),
    Mutant("a lost thread that has come back is fenced by its name", (f"{HOSTING}.epoch", "Epoch.lost"),
           "self._fencing |= dict.fromkeys(lost)", "pass", ("stateless",), first_seed=303),
    Mutant("a lost thread is not fenced", (f"{HOSTING}.crashes", "LostThreads.replace"),
           "clients.fence_threads(job.plan.application_id, [job.producer_of(name)], job.lease_epoch)", "pass", first_seed=6),
    Mutant("a thread that was fenced gets its last list again", (ASSIGNMENT, "Ownership.fenced"),
           "self.lists[thread] = TaskList(self.lists[thread].revision + 1)", "pass", first_seed=44),
    Mutant("the thread that follows changelogs ends without a word", (f"{LOOP}.standby", "StateUpdater.check"),
           "raise self._error\n    if self._thread is not None and", "return\n    if False and",
           faults=_full_disks, layout=_two_with_standbys, first_seed=18),
    Mutant("a task's numbers are committed without its values", (REPLICA, "changelog_parts"),
           "for topic, records in (*puts, *change_records)]", "for topic, records in ()]"),
    Mutant("offsets are fetched before the thread that had the task is fenced", (f"{HOSTING}.crashes", "LostThreads.replace"),
           "clients.fence_threads(job.plan.application_id, [job.producer_of(name)], job.lease_epoch)\n        epoch.fenced(name)",
           "epoch.fenced(name)\n        clients.fence_threads(job.plan.application_id, [job.producer_of(name)], job.lease_epoch)",
           faults=_slow_fences, layout=_three_threads, first_seed=953),
    Mutant("committed offsets that have gone back are believed", _thread("_gone_back"),
           "return back\n", "return {}\n", ("remembered",), first_seed=8),
    Mutant("what replicas of other processes know does not count", (REPLICA, "TaskReplica.known_inputs"),
           ", *positions_of_others(self._app, self._task)", ",", ("remembered",), first_seed=19),
    Mutant("an embedded log takes commits of members that the group has removed",
           ("penstock.log.embedded.log", "EmbeddedTransaction.commit"),
           "check_streams_member(connection, group, membership, self._offsets.get(group, ()))", "pass", is_shared=True, first_seed=341),
    Mutant("a task whose next owner has purged its records ends the epoch", (f"{HOSTING}.thread_host", "_others_read_on"),
           "return thread.reads_from(tp, offset) and", "return False and", ("count", "tables"), is_shared=True, first_seed=164, faults=_silent_drivers),
    Mutant("a replica that was away keeps rows whose deletions are gone", ("penstock.log.topic_settings", "may_miss_deletions"),
           "return True", "return False", ("tables",), first_seed=96),
    Mutant("an embedded log takes commits of fenced producers", ("penstock.log.embedded.coordination", "check_producer"),
           "row is not None and row[0] > epoch", "False", ("tables",), first_seed=147, layout=_embedded),
    Mutant("a thread begins before it has filled the global stores", (f"{LOOP}.global_state", "FollowedCopy.restore"),
           "for tp, end in ends.items():", "for tp, end in ():", ("global_table",)),
    Mutant("a thread begins before another one has filled the global stores", (f"{LOOP}.global_state", "FollowedCopy.restore"),
           "if noted_ids == ids and all(at.get(tp, -1) >= end for tp, end in ends.items()):", "if True:", ("global_table",), first_seed=9),
    Mutant("the next writer of global stores does not read on", (f"{LOOP}.global_state", "FollowedCopy.look"),
           "return dict(self._copy.positions)", "return None", ("global_table",),
           faults=_lost_writers, layout=_three_on_one, first_seed=226),
    Mutant("the next writer of global stores is where it has begun itself", (f"{LOOP}.global_state", "FollowedCopy.look"),
           "self._copy.positions, self._copy.ids = self._copy.noted()", "self._copy.ids = self._copy.noted()[1]", ("global_table",),
           faults=_lost_writers, layout=_three_on_one, first_seed=226),
    Mutant("a thread without tasks does not follow the global stores", (f"{HOSTING}.thread_host", "ThreadHost._loop"),
           "if tasks.active or thread.follows_globals:", "if tasks.active:", ("global_table",), first_seed=20),
    Mutant("a new attempt counts as far as the one before", (f"{HOSTING}.epoch", "Epoch._hello"),
           "before is not None and before.attempt == state.attempt", "before is not None"),
    Mutant("a lease that two hold: a fenced write is tried again by a producer that fences the new holder",
           (RECORD, "KafkaFencedRecord.replace"),
           "self._compare(version)  # before another writer is fenced\n                self._claim()\n"
           "            self._compare(version, anew=False)", "self._claim()", is_of_records=True),
    Mutant("a lease is renewed over that of a successor", (LEASES, "Leases.renew"),
           "check_not_fenced(held, lease.application, lease.epoch)", "pass", is_of_records=True),
    Mutant("a lease is released over that of a successor", (LEASES, "Leases.release"),
           "held.epoch != lease.epoch or held.released", "held.released", is_of_records=True),
    Mutant("a lease is taken from a holder that runs", (LEASES, "Leases.acquire"),
           "elif held is not None and not force and holder_runs(held)", "elif False", is_of_records=True),
    Mutant("a record whose answer is lost counts as not written", (RECORD, "KafkaFencedRecord._write"),
           "self._find_out()", "self._drop()", is_of_records=True, first_seed=45),
    Mutant("a journal that breaks: a statement whose answer is lost is not looked for", (JOURNAL, "StatementJournal.append"),
           "if self._is_unsure and (missed", "if False and (missed", is_of_records=True, first_seed=43),
    Mutant("a journal is written without a look at the lease", (JOURNAL, "StatementJournal.hold"),
           "self._log.fenced_record(name, (lease.application, lease.epoch))", "self._log.fenced_record(name)",
           is_of_records=True, first_seed=21),
)  # fmt: skip
