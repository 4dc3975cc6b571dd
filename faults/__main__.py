"""`python -m faults`: runs scenarios, prints a line for each and the table at the end.

Reads   the command line
Writes  logs of failed scenarios in the temporary directory; with --json a file; with --write
        docs/reliability.md. Exit code 1 if a scenario fails.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
from pathlib import Path

from faults import report, run
from faults.databases import available_engines, postgres_binaries
from faults.scenario import ENGINES, Scenario
from faults.scenarios import ALL
from support import mariadb

SEED_MAX = 2**32
VERSION = re.compile(r"\d+\.[\d.]*\d")


def _options(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__.split("\n")[0])
    names = [one.name for one in ALL]
    parser.add_argument("--long", action="store_true", help="the full figures")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="only this one")
    for option, says in (("--scenario", "only these"), ("--without", "all but these")):
        parser.add_argument(
            option, metavar="NAME", choices=names, action="extend", nargs="+", default=[], help=says
        )
    parser.add_argument("--seed", type=int, help="of an earlier run: the same schedule again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the results as JSON")
    parser.add_argument("--write", action="store_true", help="the table into docs/reliability.md")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    return parser.parse_args(given)


def chosen(names: list[str], without: list[str], long: bool) -> list[Scenario]:
    """Those that were named; else all of this length but those without which it goes."""
    if names:
        return [one for one in ALL if one.name in names]
    kept = [one for one in ALL if one.name not in without]
    return [one for one in kept if long or not one.long_only]


def _command(options: argparse.Namespace, seed: int) -> str:
    """What repeats this run."""
    words = ["python -m faults", *(["--long"] if options.long else [])]
    words += [f"--engine {one}" for one in options.engine or []]
    for option in ("scenario", "without"):
        if named := getattr(options, option):
            words.append(f"--{option} {' '.join(named)}")
    return " ".join([*words, f"--seed {seed}"])


def _servers(engines: list[str]) -> list[str]:
    """With their versions."""
    programs = {"postgresql": str(postgres_binaries() / "postgres")}
    if "mariadb" in engines:
        programs["mariadb"] = mariadb.daemon()[0]
    said = [subprocess.check_output([programs[one], "--version"], text=True) for one in engines]
    return [f"{one} {VERSION.findall(words)[0]}" for one, words in zip(engines, said, strict=True)]


def main(given: list[str] | None = None) -> int:
    options = _options(given)
    if options.list:
        print("\n".join(f"{one.name:<20} {one.fault}" for one in ALL))
        return 0
    here = available_engines()
    engines = options.engine or here
    if absent := [one for one in engines if one not in here]:
        print(f"This machine has no {absent[0]}: `make mariadb` installs it.", file=sys.stderr)
        return 2
    seed = random.randrange(SEED_MAX) if options.seed is None else options.seed
    scenarios = chosen(options.scenario, options.without, options.long)
    print(f"seed {seed}: {len(scenarios)} scenarios on {', '.join(engines)}", flush=True)
    began = time.monotonic()
    results = run.run_engines([one.name for one in scenarios], engines, seed, options.long)
    minutes = round((time.monotonic() - began) / 60, 1)
    print(f"\n{report.summary(results, minutes)}")
    facts = report.Run(_command(options, seed), seed, options.long, minutes, _servers(engines))
    if options.json is not None:
        options.json.write_text(report.as_json(results, facts), encoding="utf-8")
    if options.write:
        report.write_page(report.table(results, facts))
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
