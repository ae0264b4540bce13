"""`python -m branchwork`."""

from branchwork.cli import run

run()
