"""Public fakes and contract suites for people who extend or embed Branchwork."""
