"""A broker's configuration and command line: small heap, quick first group, own log, data formatted once."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from orchestration.local.errors import LocalError
from orchestration.local.files import folder_appearing_whole, write_whole
from orchestration.local.state import LOOPBACK, Broker, Cluster

_FORMAT_DEADLINE_SECONDS = 120

_LOGGING = """Configuration:
  status: ERROR
  Appenders:
    RollingFile:
      name: file
      fileName: ${sys:weir.logs}/kafka.log
      filePattern: ${sys:weir.logs}/kafka-%i.log
      PatternLayout: {pattern: "%d{ISO8601} %p %m (%c)%n%ex"}
      SizeBasedTriggeringPolicy: {size: 20MB}
      DefaultRolloverStrategy: {max: 3}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: file}}
    Logger:
      - {name: kafka.server, level: INFO}
      - {name: org.apache.kafka.common.config, level: ERROR}
"""


def properties(cluster: Cluster, broker: Broker) -> dict[str, str]:
    """The broker's server.properties, as keys and values."""
    folder = cluster.broker_folder(broker)
    replicas = min(3, len(cluster.brokers))
    in_sync = 2 if replicas == 3 else 1
    return {
        "process.roles": "broker,controller",
        "node.id": str(broker.id),
        "controller.quorum.voters": ",".join(f"{b.id}@{LOOPBACK}:{b.controller_port}" for b in cluster.brokers),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{broker.address},CONTROLLER://{LOOPBACK}:{broker.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{broker.address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / "data"),
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "share.coordinator.state.topic.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": str(8 * 2**20),
        # After kill -9 a broker waits until its former self is taken for dead.
        "broker.session.timeout.ms": "5000",
        "broker.heartbeat.interval.ms": "1000",
        "initial.broker.registration.timeout.ms": "60000",
    }


def rendered(values: dict[str, str]) -> str:
    """The text of a Java properties file."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in values.items())


def configure(cluster: Cluster, broker: Broker) -> None:
    """Write the broker's configuration files; its data is not touched."""
    folder = cluster.broker_folder(broker)
    write_whole(folder / "server.properties", rendered(properties(cluster, broker)))
    write_whole(folder / "log4j2.yaml", _LOGGING)


def command(java: Path, classpath: str, cluster: Cluster, broker: Broker) -> list[str]:
    """What runs the broker. Its last argument is how its process is recognized."""
    folder = cluster.broker_folder(broker)
    heap = "768m" if len(cluster.brokers) == 1 else "512m"
    return [*_java(java, classpath, folder, heap), "kafka.Kafka", str(folder / "server.properties")]


def format_data(java: Path, classpath: str, cluster: Cluster) -> None:
    """Give every broker that has none its data folder, whole or not at all.

    Raises LocalError with Kafka's own words.
    """
    with ExitStack() as stack:
        tools = []
        for broker in cluster.brokers:
            folder = cluster.broker_folder(broker)
            if not (folder / "data").exists():
                making = stack.enter_context(folder_appearing_whole(folder / "data"))
                tools.append(stack.enter_context(_formatter(java, classpath, cluster, broker, making)))
        for tool in tools:
            output = tool.communicate(timeout=_FORMAT_DEADLINE_SECONDS)[0]
            if tool.returncode:
                last = (output.strip().splitlines() or ["no output"])[-1]
                raise LocalError(f"Kafka could not format a data folder in {cluster.folder}: {last}")


@contextmanager
def _formatter(java: Path, classpath: str, cluster: Cluster, broker: Broker, data: Path) -> Iterator["subprocess.Popen[str]"]:
    """Kafka's tool at work on the folder `data`; it does not outlive the block."""
    folder = cluster.broker_folder(broker)
    configuration = folder / "format.properties"
    write_whole(configuration, rendered(properties(cluster, broker) | {"log.dirs": str(data)}))
    command = [*_java(java, classpath, folder, "128m"), "kafka.tools.StorageTool", "format"]
    command += ["-t", cluster.cluster_id, "-c", str(configuration)]
    tool = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield tool
    finally:
        tool.kill()
        tool.wait()


def _java(java: Path, classpath: str, folder: Path, heap: str) -> list[str]:
    return [
        *(
            str(java),
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
        ),
        *(f"-Dlog4j2.configurationFile={folder / 'log4j2.yaml'}", f"-Dweir.logs={folder / 'logs'}"),
        *("-cp", classpath),
    ]
