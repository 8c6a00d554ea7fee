"""What the embedded cluster is: its brokers, ports and folders, kept in `cluster.json` so that the next `up`
finds its data.
"""

import base64
import json
import random
import socket
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from orchestration.local.errors import LocalError
from orchestration.local.files import write_whole

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Broker:
    """One broker, which is a controller too. Both ports are on loopback."""

    id: int
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"{LOOPBACK}:{self.port}"


@dataclass(frozen=True)
class Cluster:
    """The brokers of a cluster and the id that its data carries. `folder` holds a folder for each broker."""

    cluster_id: str
    folder: Path
    brokers: tuple[Broker, ...]

    @property
    def bootstrap_servers(self) -> str:
        """What a client is given."""
        return ",".join(broker.address for broker in self.brokers)

    def broker_folder(self, broker: Broker) -> Path:
        """Where that broker keeps its data, logs, configuration and pid."""
        return self.folder / f"broker-{broker.id}"


def new_cluster(folder: Path, brokers: int) -> Cluster:
    """A cluster that never ran. Ports are 0 until `with_ports`."""
    # "x" first: an id that begins with a dash would look like an option to Kafka's tools.
    cluster_id = "x" + base64.urlsafe_b64encode(uuid.uuid4().bytes)[1:22].decode()
    return Cluster(cluster_id, folder, tuple(Broker(number, 0, 0) for number in range(1, brokers + 1)))


def with_ports(cluster: Cluster, port: int | None) -> Cluster:
    """The cluster on `port` and those after it; 0 means any free ones, None those that it had, or 9092.

    Raises LocalError when something listens there already.
    """
    free = free_ports(2 * len(cluster.brokers))
    brokers = []
    for broker in cluster.brokers:
        client = _wanted(broker, port) or free.pop()
        _require_free(client)
        controller = broker.controller_port
        brokers.append(replace(broker, port=client, controller_port=controller if _is_free(controller) else free.pop()))
    return replace(cluster, brokers=tuple(brokers))


def _wanted(broker: Broker, first: int | None) -> int:
    """The port for clients, 0 for any."""
    if first is None:
        return broker.port or 9091 + broker.id
    return first + broker.id - 1 if first else 0


def load(folder: Path) -> Cluster | None:
    """The cluster recorded in `folder`, or None. Raises LocalError when the record cannot be read."""
    path = folder / "cluster.json"
    try:
        found = json.loads(path.read_text())
        return Cluster(found["cluster_id"], folder, tuple(Broker(**broker) for broker in found["brokers"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LocalError(
            f"{path} cannot be read ({error}); the topics' data beside it is untouched: "
            "restore that file, or delete "
            f"{folder} to start with an empty cluster"
        ) from error


def save(cluster: Cluster) -> None:
    """Record the cluster in its folder."""
    record = {"cluster_id": cluster.cluster_id, "brokers": [asdict(broker) for broker in cluster.brokers]}
    write_whole(cluster.folder / "cluster.json", json.dumps(record, indent=2) + "\n")


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nothing listens on now, below the range that the system hands to outgoing
    connections.
    """
    found: set[int] = set()
    while len(found) < count:
        port = random.randrange(20000, 32000)
        if _is_free(port):
            found.add(port)
    return sorted(found)


def _is_free(port: int) -> bool:
    if not 0 < port < 65536:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: closed connections do not count
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _require_free(port: int) -> None:
    if not _is_free(port):
        raise LocalError(
            f"port {port} on {LOOPBACK} is taken by another program: stop that one, "
            "or choose another with `weir kafka up --port PORT`"
        )
