"""Adapters: one module per wire format."""
