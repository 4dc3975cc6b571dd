"""What builds the project and is not in the wheel: `make generate` runs it."""
