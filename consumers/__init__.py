"""Kafka topics into Delta tables, exactly once. Knows Kafka and Delta; knows neither Dagster nor Spark."""
