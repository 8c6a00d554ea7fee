"""Invalid records are made durable elsewhere before any position passes them."""

from consumers.processing.strategies.dead_letters.letters import DeadLetterSink, Durable
from consumers.processing.strategies.dead_letters.strategy import DeadLetters
from consumers.processing.strategies.dead_letters.table import TableSink
from consumers.processing.strategies.dead_letters.topic import TopicSink

__all__ = ["DeadLetterSink", "DeadLetters", "Durable", "TableSink", "TopicSink"]
