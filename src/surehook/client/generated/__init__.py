"""Written by `make generate`, see tools/client.py."""
