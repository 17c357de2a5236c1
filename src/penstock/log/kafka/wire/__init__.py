"""Kafka's protocol by column, where librdkafka would make an object of each record.

Connections and messages of the protocol are kafka-python's; record batches, fetches and transactions are made for
Arrow. Everything else of Kafka (topics, groups, offsets) goes through confluent-kafka.
"""
