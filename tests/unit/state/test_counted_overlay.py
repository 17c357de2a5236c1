"""The calls of a store are counted, and it answers as without."""

from penstock.state.maps import CountedOverlay, MemoryMap, TaskOverlay, count_calls, take_calls


def state():
    base = MemoryMap()
    for number in range(10):
        base.put(b"k%d" % number, b"v")
    made = TaskOverlay(0, {"store": base}, {})
    count_calls(made)
    return made, base


def keys_of(calls):
    return {call: numbers[0] for (_, call), numbers in calls.items()}


def test_calls_are_counted_by_keys_until_they_are_taken():
    made, _ = state()
    store = made.map("store")
    assert store.get(b"k1") == b"v"
    assert store.get_many([b"k1", b"none", b"k2"]) == [b"v", None, b"v"]
    store.put_many([b"a", b"b", b"c"], [b"1", None, b"3"])
    store.put(b"k1", None)
    assert len(list(store.scan())) == 11
    assert [key for key, _ in store.scan(b"k5", b"k7")] == [b"k5", b"k6"]
    assert [len(rows) for rows in store.scan_many([(b"k0", b"k3"), (b"a", b"b")])] == [2, 1]
    calls = take_calls(made)
    assert keys_of(calls) == {"get": 4, "put": 2, "delete": 2, "all": 1, "range": 3}
    assert all(seconds > 0 for _, seconds in calls.values())
    assert take_calls(made) == {}


def test_counting_goes_on_over_the_next_batch_in_the_same_maps():
    made, base = state()
    store = made.map("store")
    count_calls(made)
    assert made.map("store") is store
    assert isinstance(store, CountedOverlay)
    made.rebase(1, {"store": base}, {})
    store.get(b"k1")
    assert keys_of(take_calls(made)) == {"get": 1}


def test_nothing_is_counted_unless_it_was_asked_for():
    made = TaskOverlay(0, {"store": MemoryMap()}, {})
    made.map("store").get(b"k")
    assert take_calls(made) == {}
