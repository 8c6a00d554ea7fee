"""Publishes a table to Kafka: after each new version, the rows that changed, keyed, exactly once.

Kafka alone knows what was sent: a group's offset is the table's version, committed in the transaction that holds the records.
"""
