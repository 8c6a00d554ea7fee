"""What a YAML file in `orchestration/defs` can be: a consumer or a job."""

from orchestration.components.kafka_consumer import KafkaConsumer
from orchestration.components.spark_job import SparkJob

__all__ = ["KafkaConsumer", "SparkJob"]
