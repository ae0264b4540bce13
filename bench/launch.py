"""Runs one command and writes what it took as JSON: `python -I -S launch.py RESULT COMMAND…`.

A process of its own, because the peak memory that Linux reports for a child starts at the size of whoever
forked it, and the bench is large. Imports nothing but the essentials for the same reason: its own size, about
10 MB, is the smallest figure that can come out.
"""

import json
import os
import sys
import time

RSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""`ru_maxrss` is in bytes on macOS and in kilobytes elsewhere."""


def main() -> None:
    result, *command = sys.argv[1:]
    started = time.monotonic()
    pid = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(pid, 0)
    took = {
        "wall_s": time.monotonic() - started,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "max_rss": usage.ru_maxrss * RSS_UNIT,
        "code": os.waitstatus_to_exitcode(status),
    }
    file = os.open(result, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(file, json.dumps(took).encode())
    os.close(file)


main()
