"""The receiving side on this machine: `listen`, `dev` and surehook.testing."""
