"""`python -m branchwork`."""

import sys

from branchwork.cli import main

sys.exit(main())
