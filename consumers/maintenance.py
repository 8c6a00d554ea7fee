"""What a definition says about keeping its tables healthy: the key `maintenance` of consumers and jobs."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Maintenance(BaseModel):
    """How a table is looked after. `maintenance: off` means `maintenance: {enabled: false}`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    enabled: bool = Field(default=True, description="compact, vacuum and checkpoint this table by itself")
    files_per_window: int = Field(default=100, ge=1, description="the file budget: a window with more is reported")
    small_file_bytes: int = Field(default=16 * 2**20, ge=1, description="smaller files are compacted")
    target_file_bytes: int = Field(default=128 * 2**20, ge=2**20, description="into files of about this size")
    bytes_per_run: int = Field(default=2 * 2**30, ge=2**20, description="how much a run reads at most to compact")
    newest_windows: int = Field(default=2, ge=0, description="so many of the newest windows are left alone, being written")
    z_order: list[str] = Field(default=[], description="sort compacted files along these columns")
    keep_hours: int = Field(default=168, ge=24, description="old versions and files of no version are kept this long")


def _short(value: Any) -> Any:
    return {"enabled": value} if isinstance(value, bool) else value


MaintenanceKey = Annotated[Maintenance, BeforeValidator(_short)]
"""The key's type in a definition."""
