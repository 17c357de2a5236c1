"""Orders as dataclasses: what is read, joined, counted and written are objects of your own classes, JSON in the topics.

topic orders      order id -> Order
topic customers   customer -> Customer
  joined by the customer -> Invoice, whose amount is exact to the cent
  -> topic invoices; an order that lacks a field goes to the topic of dead letters
  -> by country: the turnover     topic turnover
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum

from penstock import Consumed, Grouped, Joined, Materialized, Produced, StreamsBuilder


class Currency(Enum):
    EUR = "EUR"
    USD = "USD"


@dataclass
class Line:
    item: str
    price: Decimal
    quantity: int = 1


@dataclass
class Order:
    customer: str
    at: datetime
    lines: list[Line] = field(default_factory=list)
    currency: Currency = Currency.EUR
    note: str | None = None


@dataclass
class Customer:
    name: str
    country: str = field(default="", metadata={"name": "countryCode"})  # its name in JSON


@dataclass
class Invoice:
    name: str
    country: str
    amount: Decimal
    currency: Currency
    due: datetime


@dataclass
class Turnover:
    orders: int = 0
    amount: Decimal = Decimal(0)


def with_customer(order: Order, customer: Customer) -> Invoice:
    amount = sum((line.price * line.quantity for line in order.lines), Decimal(0))
    return Invoice(customer.name, customer.country, amount, order.currency, order.at.replace(hour=23, minute=59))


def added(_: str, invoice: Invoice, total: Turnover) -> Turnover:
    return Turnover(total.orders + 1, total.amount + invoice.amount)


config = {
    "application.id": "typed-orders",
    "default.key.serde": "string",
    "errors.dead.letter.queue.topic.name": "bad-orders",
    "deserialization.exception.handler": "continue",
}
builder = StreamsBuilder()
orders = builder.stream("orders", Consumed(key_serde=str, value_serde=Order))
customers = builder.table("customers", Consumed(key_serde=str, value_serde=Customer))
invoices = orders.select_key(lambda order: order.customer).join(
    customers, with_customer, Joined(key_serde=str, value_serde=Order)
)
invoices.to("invoices", Produced(key_serde=str, value_serde=Invoice))
(
    invoices.group_by(lambda invoice: invoice.country, Grouped(key_serde=str, value_serde=Invoice))
    .aggregate(Turnover, added, Materialized("turnover-by-country", value_serde=Turnover))
    .to_stream()
    .to("turnover", Produced(key_serde=str, value_serde=Turnover))
)
topology = builder.build()

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
RECORDS = [
    ("customers", "ann", Customer("Ann", "IT")),
    ("customers", "bob", Customer("Bob", "NO")),
    ("orders", "1", Order("ann", NOON, [Line("lamp", Decimal("19.90"), 2)])),
    ("orders", "2", Order("bob", NOON, [Line("book", Decimal("8.50"))], Currency.USD, "a gift")),
    ("orders", "3", Order("ann", NOON, [Line("bulb", Decimal("0.30"), 3)])),
]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
