"""How commits to our tables are written, whoever makes them."""

from deltalake import PostCommitHookProperties, WriterProperties

HOOKS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""The log says which offsets every commit accounts for, so no commit lets it expire."""
WRITER = WriterProperties(compression="ZSTD", compression_level=1)
"""For files that delta-rs writes, in commits that change some of a file's rows: as our own are written."""
