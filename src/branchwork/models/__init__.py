"""Model servers: the catalogue, keys, adapters. Knows sessions' messages and no agent."""
