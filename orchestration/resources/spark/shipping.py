"""Job code as one file that Spark sends to drivers and executors elsewhere."""

import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from importlib import util
from io import BytesIO
from pathlib import Path

from consumers.errors import ConfigError
from orchestration.local.files import folder_appearing_whole

_MADE = (1980, 1, 1, 0, 0, 0)  # the same code makes the same file


def shipped(folder: Path, packages: Iterable[str]) -> Path:
    """A zip of these importable packages inside of `folder`, made once for its content. Raises ConfigError for one that is not
    there.
    """
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(_files(packages)):
            archive.writestr(zipfile.ZipInfo(name, _MADE), path.read_bytes())
    target = folder / hashlib.sha256(buffer.getvalue()).hexdigest()[:16]
    if not target.is_dir():
        with folder_appearing_whole(target) as making:
            (making / "jobs.zip").write_bytes(buffer.getvalue())
    return target / "jobs.zip"


def found_in(packages: Iterable[str]) -> list[Path]:
    """The folders to import these packages from, for Python workers on this machine. Raises as `shipped` does."""
    return sorted({_root(package).parent for package in packages})


def _root(package: str) -> Path:
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"cannot send the package {package} to Spark: there is none of that name here")
    return Path(spec.submodule_search_locations[0])


def _files(packages: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for package in packages:
        root = _root(package)
        yield from ((str(Path(package) / path.relative_to(root)), path) for path in root.rglob("*.py"))
