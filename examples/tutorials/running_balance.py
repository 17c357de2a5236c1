"""Keep the balance of each account, and refuse what would overdraw it.

Transfers of an account have its number as key, so they come one after the other to one task: no lock is needed. Each
result says the balance behind it; the header `transfer-id` goes along, so that a reader can find the request that it
belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock import Processor, ProcessorContext, Record, Stores, StreamsBuilder, TopologyTestDriver

config = {"application.id": "running-balance", "default.key.serde": "string", "default.value.serde": "json"}


class Book(Processor[str, int]):
    @classmethod
    def stores(cls) -> Iterable[Any]:
        return [Stores.key_value("balances", key_serde="string", value_serde="long")]

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.balances: Any = context.get_state_store("balances")

    def process(self, record: Record[str, int]) -> None:
        amount, balance = record.value, self.balances.get(record.key) or 0
        if not isinstance(amount, int):
            result, reason = {"amount": amount, "balance": balance}, b"not an amount"
        elif balance + amount < 0:
            result, reason = {"amount": amount, "balance": balance}, b"too little money"
        else:
            self.balances.put(record.key, balance + amount)
            result, reason = {"amount": amount, "balance": balance + amount}, b""
        booked = record.with_value(result)  # headers and timestamp stay
        self.context.forward(booked.with_header("refused", reason) if reason else booked)


builder = StreamsBuilder()
builder.stream("transfers").process(Book, name="book").to("bookings")
topology = builder.build()

TRANSFERS: list[tuple[str, Any]] = [
    ("DE1", 100),
    ("FR7", 50),
    ("DE1", -30),
    ("DE1", -80),  # only 70 are left
    ("FR7", -50),
    ("FR7", -1),
    ("DE1", "ten"),  # wrong
    ("DE1", 15),
    ("IT3", -5),  # an account without money
    ("DE1", -85),
]


def test_no_balance_falls_below_zero() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for number, (account, amount) in enumerate(TRANSFERS):
            transfer_id = [("transfer-id", f"t{number}".encode())]
            driver.input_topic("transfers").pipe(amount, account, number * 1_000, transfer_id)
        bookings = driver.output_topic("bookings").read_records_to_list()
        balances = [record.value["balance"] for record in bookings if record.key == "DE1"]
        assert balances == [100, 70, 70, 70, 85, 0]
        headers = [dict(record.headers) for record in bookings]
        refused = {header["transfer-id"]: header["refused"] for header in headers if "refused" in header}
        little = b"too little money"
        assert refused == {b"t3": little, b"t5": little, b"t6": b"not an amount", b"t8": little}
        assert driver.store("balances").get("DE1") == 0


if __name__ == "__main__":
    test_no_balance_falls_below_zero()
