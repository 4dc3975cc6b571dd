"""The database server of a run, in its own process: `python -m tools.mutants.servers postgres`.

Reads   nothing but the end of its input
Writes  one line: the run's directory, and the kind of server; then waits until its input ends

The tests' own support starts them, from the program as it is: no mutant is ever in here.
"""

from __future__ import annotations

import importlib
import json
import sys


def main(engine: str) -> None:
    sys.path.insert(0, "tests")
    servers = importlib.import_module("support.servers")
    kinds = servers.wanted(engine)
    if not kinds:
        raise SystemExit(f"There is no server of {engine} here.")
    run = servers.Run()
    try:
        run.begin(kinds[:1])
        servers.found(run.directory, kinds[0])
        print(json.dumps({"directory": str(run.directory), "kind": kinds[0]}), flush=True)
        sys.stdin.read()
    finally:
        run.end()


if __name__ == "__main__":
    main(sys.argv[1])
