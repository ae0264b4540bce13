"""Sessions: entries, the tree, the file. Knows no agent and no model server."""
