"""Building windows of a staged table again from what Kafka, or the table itself, holds: locate, read, decode, replace.

Positions are never touched. It knows tables and brokers, and nothing of Dagster.
"""
