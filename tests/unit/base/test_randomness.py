"""The library draws no numbers from the program's generator, whose seed a program may have set."""

import random

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.log.kafka.transactions.failed_transactions import TransactionAttempts
from penstock.sql.functions.maths import random_number
from penstock.tools.broker.broker_settings import free_port


def waits_of_failed_transactions():
    attempts = TransactionAttempts(patience_s=5)
    attempts.allow_retry(KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT)))
    return attempts.pause_s()


@pytest.mark.parametrize("draw", [waits_of_failed_transactions, free_port, random_number])
def test_the_numbers_of_the_program_stay_as_they_are(draw):
    state = random.getstate()
    assert len({draw() for _ in range(20)}) > 1
    assert random.getstate() == state
