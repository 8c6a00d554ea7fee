"""Fetches jars by Maven coordinates into the cache, with the Ivy that ships inside PySpark.

Once there, no network is used.
"""

import re
import shutil
import subprocess
import tempfile
from importlib import util
from pathlib import Path

from orchestration.local.errors import LocalError
from orchestration.local.files import folder_appearing_whole, locked, require_free_space
from orchestration.local.java import java
from orchestration.settings import Settings

KAFKA = "org.apache.kafka:kafka_2.13:4.3.0"
KAFKA_LOGGING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"  # without it Kafka's log goes nowhere
DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"

_NEEDED_BYTES = 300 * 2**20
_DEADLINE_SECONDS = 900
_RESOLVER = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


def fetch(settings: Settings, name: str, coordinates: str) -> Path:
    """The folder that holds the jars of `group:artifact:version` and of all that it needs.

    `name` is what an operator calls it ("Kafka"); it appears in errors only. The folder is complete or
    absent, and nothing is run when it is there. Delta's leaves out what Spark's own jars folder has already.
    Raises LocalError when the registry cannot be reached or the disk is full.
    """
    _, artifact, version = coordinates.split(":")
    target = settings.cache / "jars" / f"{artifact}-{version}"
    if target.is_dir():
        return target
    with locked(settings.cache / "jars" / ".lock"):
        if target.is_dir():
            return target
        for leftover in target.parent.glob(f".{target.name}.*"):  # of somebody who was killed here
            shutil.rmtree(leftover, ignore_errors=True)
        require_free_space(settings.cache, _NEEDED_BYTES)
        with folder_appearing_whole(target) as making:
            _retrieve(settings, name, coordinates, making)
            if coordinates == DELTA:
                leave_out(making, spark_jars())
    return target


def spark_jars() -> Path:
    """PySpark's own folder of jars. Raises LocalError when PySpark is not installed."""
    spec = util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise LocalError("PySpark is not installed here, and the tool that fetches jars is inside it: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "jars"


def leave_out(folder: Path, present: Path) -> None:
    """Delete the jars of `folder` whose artifact, of whatever version, is in `present`."""
    known = {artifact_of(jar) for jar in present.glob("*.jar")}
    for jar in folder.glob("*.jar"):
        if artifact_of(jar) in known:
            jar.unlink()


def artifact_of(jar: Path) -> str:
    """The jar's name without its version: `commons-pool-1.6.jar` is `commons-pool`."""
    return re.sub(r"^(.*)-\d.*$", r"\1", jar.stem)  # the last dash before a digit: names such as hive-shims-0.23 have two


def _retrieve(settings: Settings, name: str, coordinates: str, into: Path) -> None:
    """Resolve and copy with Ivy; raises LocalError with what to do when that fails."""
    ivy = next(spark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise LocalError(f"no ivy-*.jar in {spark_jars()}: this PySpark cannot fetch jars, install the locked version")
    with tempfile.TemporaryDirectory(prefix="weir-ivy-") as scratch:
        resolver = Path(scratch) / "ivysettings.xml"
        resolver.write_text(_RESOLVER)
        command = [
            *(
                str(java(settings)),
                "-jar",
                str(ivy),
                "-settings",
                str(resolver),
                "-cache",
                str(settings.cache / "ivy"),
            ),
            *("-dependency", *coordinates.split(":"), "-confs", "default"),
            *("-retrieve", f"{into}/[artifact]-[revision].[ext]"),
        ]
        try:
            told = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=_DEADLINE_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise LocalError(f"fetching {name} took over {_DEADLINE_SECONDS} s; check the network, then try again") from error
    output = told.stdout + told.stderr
    if told.returncode or not any(into.glob("*.jar")):
        log = settings.cache / "jars" / f"{coordinates.replace(':', '_')}.log"
        log.write_text(output)
        raise LocalError(reason(name, coordinates, output, log))


def reason(name: str, coordinates: str, output: str, log: Path) -> str:
    """One line for the operator out of what Ivy printed."""
    if "No space left on device" in output:
        return f"disk full while fetching {name}: free some space, or set WEIR_CACHE to a bigger disk"
    if "PKIX path" in output or "SSLHandshakeException" in output or "trustAnchors" in output:
        return (
            f"cannot fetch {name}: Java does not trust the registry's certificate; "
            "behind an inspecting proxy set "
            "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=<trust store with its certificate> and try again"
        )
    if re.search(r"UnknownHost|ConnectException|timed out|unreachable|NoRouteToHost|Host .* not found", output):
        return f"cannot fetch {name}: the Maven registry cannot be reached; check network and proxy, try again"
    return f"cannot fetch {name} ({coordinates}): Ivy failed, see {log}; check network and proxy, try again"
