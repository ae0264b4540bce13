"""How the program sets Python's garbage collector: for itself when it runs, never for who imports it."""

import subprocess
import sys

from branchwork.cli import YOUNG_OBJECTS

PROBE = """
import atexit, gc
usual = gc.get_threshold()
atexit.register(lambda: print(gc.get_freeze_count() > 0))  # registered first, so it runs last
from branchwork.cli import main
print(gc.get_threshold() == usual)
try:
    main(["sessions", "--help"])
except SystemExit:
    pass
print(gc.get_threshold()[0], gc.isenabled())
"""


def test_the_collector_looks_rarely_while_the_program_runs_and_not_at_all_at_its_end() -> None:
    command = [sys.executable, "-I", "-B", "-c", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    before, *_, during, at_end = done.stdout.splitlines()
    assert (before, during, at_end) == ("True", f"{YOUNG_OBJECTS} True", "True"), done.stdout + done.stderr
