"""surehook: webhook delivery that you run yourself."""

__version__ = "0.1.0.dev0"
