from __future__ import annotations

from penstock.base.java_text.hashing import hash_order
from penstock.topology.description import TreeOrder


def test_hash_order_is_that_of_java() -> None:
    # new HashSet<>(List.of("count-store", "a", "b", "store-2")) prints [a, b, ...] by bucket.
    assert hash_order(["b", "a"]) == ["a", "b"]
    assert hash_order(["Aa", "BB"]) == ["Aa", "BB"]  # equal hashes keep the order of insertion
    assert hash_order(["BB", "Aa"]) == ["BB", "Aa"]
    assert hash_order(["banana", "apple", "cherry"]) == ["banana", "apple", "cherry"]
    assert hash_order(["public.z", "s2.a", "public.b"]) == ["s2.a", "public.b", "public.z"]
    assert hash_order([*"abcdefghijkl", *"abcdefghijkl"]) == [*"abcdefghijkl"]  # the second time changes no size


def test_tree_set_orders_by_size_then_name() -> None:
    sizes = {"a": 1, "b": 3, "c": 1, "d": 2}
    names = TreeOrder(sizes).new_set()
    for name in ["c", "a", "d", "b", "a"]:
        names.add(name)
    assert list(names.names()) == ["b", "d", "a", "c"]


def test_tree_set_stays_sorted_for_many() -> None:
    sizes = {f"n{i:03}": i * 7919 % 101 for i in range(200)}
    names = TreeOrder(sizes).new_set()
    for name in sizes:
        names.add(name)
    assert list(names.names()) == sorted(sizes, key=lambda n: (-sizes[n], n))
