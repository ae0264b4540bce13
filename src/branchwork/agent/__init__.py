"""The agent: turns a session and a model into runs. Knows no extension and no screen."""
