"""The main job as a demonstration: watched while Dagster runs it, and compared with what must come out."""
