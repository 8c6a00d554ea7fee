"""`python -m orchestration.cli` is `weir`."""

from orchestration.cli import main

main()
