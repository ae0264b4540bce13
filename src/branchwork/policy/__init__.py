"""What an agent may touch."""
