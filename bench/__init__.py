"""Measurements. None of this is part of the test suite; `python -m bench.host --help` says how to run it."""
