"""The connectivity layer: everything that talks to a Kafka cluster, behind protocols that the engine is written against."""
