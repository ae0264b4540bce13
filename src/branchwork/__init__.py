"""Branchwork: a terminal coding agent whose sessions are trees and whose limits are enforced.

Importing this package does no work: no file, socket or heavy library is touched.
"""

__version__ = "0.1.0"
