"""Who takes part in the ingestion benchmark, what each promises, and the ratios that are to be reached."""

from dataclasses import dataclass

from benchmarks.environments import Environment

_DELTA = ("deltalake==1.6.6", "pyarrow==26.0.1")
_KAFKA = "confluent-kafka==2.16.1"

LOOP = Environment("loop", (*_DELTA, _KAFKA, "pandas==2.3.3"))
ARROYO = Environment("arroyo", (*_DELTA, _KAFKA, "sentry-arroyo==2.48.0"))
QUIX = Environment("quix", (*_DELTA, "quixstreams==3.28.1"))
DLT = Environment("dlt", (*_DELTA, _KAFKA, "dlt[deltalake]==1.31.0"), dlt_source="kafka")
SPARK = Environment(
    "spark",
    ("pyspark==4.0.0",),
    jars=("io.delta:delta-spark_2.13:4.0.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"),
)


@dataclass(frozen=True)
class Contestant:
    """A module that is run for a task. `share` is the part of the records that a slow one reads, from a topic of its own."""

    title: str
    module: str
    promise: str
    environment: Environment | None = None
    members: int = 1
    share: float = 1.0


@dataclass(frozen=True)
class Target:
    """`who` is to be at least `least` times as fast as `beside`."""

    who: str
    beside: str
    least: float


def contestants(members: int) -> dict[str, Contestant]:
    """All of them; `members` is how many of ours serve together."""
    return {
        "bare": Contestant("bare Consumer.consume", "benchmarks.bare", "stores nothing"),
        "weir": Contestant("Weir, one member", "benchmarks.contestant", "exactly once"),
        "members": Contestant(f"Weir, {members} members", "benchmarks.contestant", "exactly once", members=members),
        "loop": Contestant("poll + json + pandas", "benchmarks.peers.loop", "at least once", LOOP),
        "arroyo": Contestant("sentry-arroyo", "benchmarks.peers.arroyo", "at least once", ARROYO),
        "spark": Contestant("Spark Structured Streaming", "benchmarks.peers.spark", "exactly once", SPARK),
        "quix": Contestant("quix-streams", "benchmarks.peers.quix", "at least once", QUIX, share=0.1),
        "dlt": Contestant("dlt's Kafka source", "benchmarks.peers.dlt", "at least once", DLT, share=0.05),
    }


TARGETS = (
    Target("weir", "bare", 0.45),
    Target("members", "bare", 0.6),
    Target("weir", "spark", 2.2),
    Target("weir", "arroyo", 5.0),
    Target("weir", "loop", 3.0),
)
