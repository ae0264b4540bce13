"""One module per subcommand: `SUMMARY`, `configure(parser)`, `run(args, console) -> exit code`.

`branchwork.cli` imports only the one that was asked for.
"""
