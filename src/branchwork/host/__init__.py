"""The host: settings now; hooks, commands and resources of extensions."""
