"""Running commands so that they can only write where they may: what to confine (`plan`), by what (`probe`)."""
