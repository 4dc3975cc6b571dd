"""`python -m tools.mutants`: see the package.

Exit code 1 if a mutant survives that explained.toml does not explain, or if it explains one that
there is not, or that is killed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.mutant import Mutant
from tools.mutants.runner import REPOSITORY, Result, Runner
from tools.mutants.targets import TARGETS, Target


@dataclass(frozen=True, slots=True)
class Explained:
    """Mutants that may survive, by name (* stands for anything), and why."""

    name: str
    reason: str

    def about(self, mutant: Mutant) -> bool:
        pattern = ".*".join(map(re.escape, self.name.split("*")))
        return re.fullmatch(pattern, mutant.name) is not None


def explained() -> list[Explained]:
    text = Path(__file__).with_name("explained.toml").read_text(encoding="utf-8")
    return [
        Explained(f"{path} {name}", reason)
        for path, reasons in tomllib.loads(text).items()
        for name, reason in reasons.items()
    ]


def main() -> int:
    given = _arguments()
    wanted = [
        (target, mutant)
        for target in sorted(TARGETS, key=lambda target: target.path.endswith(".sql"))
        for mutant in target.mutants(REPOSITORY)
        if any(words in mutant.name for words in given.only or [""])
    ]
    if given.list:
        for _, mutant in wanted:
            print(mutant.name)
        return 0
    if given.unexplained:
        reasons = explained()
        wanted = [pair for pair in wanted if not any(one.about(pair[1]) for one in reasons)]
    done = _known(given.log)
    with Runner() as runner:
        for target, mutant in wanted:
            if mutant.name not in done:
                first = target.path not in _checked
                _run(runner, target, mutant, given.log, first=first, trusted=given.trust)
    results = _known(given.log) | {result.mutant.name: result.outcome for result in _results}
    return _summed_up(wanted, results)


_checked: set[str] = set()
_results: list[Result] = []


def _run(
    runner: Runner,
    target: Target,
    mutant: Mutant,
    log: Path | None,
    *,
    first: bool,
    trusted: bool,
) -> None:
    if target.path.endswith(".sql"):
        runner.warm_up()
    if first and not trusted:
        seconds = runner.check(target)
        print(f"\n{target.path}: its tests pass in {seconds:.0f} s", flush=True)
        _checked.add(target.path)
    result = runner.run(target, mutant)
    _results.append(result)
    noticed = f" by {result.by}" if result.by else ""
    what = mutant.name.removeprefix(f"{mutant.path} ")
    print(f"{result.outcome:9} {result.seconds:5.1f} s  {what}{noticed}", flush=True)
    if log:
        with log.open("a", encoding="utf-8") as file:
            line = {"name": mutant.name, "outcome": result.outcome, "by": result.by}
            file.write(json.dumps(line) + "\n")


def _known(log: Path | None) -> dict[str, str]:
    if log is None or not log.exists():
        return {}
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return {line["name"]: line["outcome"] for line in lines}


def _summed_up(wanted: list[tuple[Target, Mutant]], results: dict[str, str]) -> int:
    reasons = explained()
    print(f"\n{'mutants':>8} {'killed':>8} {'timed out':>10} {'explained':>10} {'survived':>9}")
    unexplained, unneeded = [], []
    for path in dict.fromkeys(target.path for target, _ in wanted):
        count: Counter[str] = Counter()
        for _, mutant in wanted:
            if mutant.path != path:
                continue
            outcome = results[mutant.name]
            about = [one for one in reasons if one.about(mutant)]
            if outcome == "survived" and about:
                outcome = "explained"
            elif outcome == "survived":
                unexplained.append(mutant.name)
            elif any(one.name == mutant.name for one in about):
                unneeded.append(mutant.name)
            count[outcome] += 1
        print(
            f"{count.total():8} {count['killed']:8} {count['timed out']:10} "
            f"{count['explained']:10} {count['survived']:9}  {path}"
        )
    for name in unexplained:
        print(f"survived: {name}")
    for name in unneeded:
        print(f"explained, but killed: {name}")
    return 1 if unexplained or unneeded else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants")
    parser.add_argument("--only", action="append", help="mutants whose name has this in it")
    parser.add_argument("--list", action="store_true", help="which there are; runs nothing")
    parser.add_argument("--unexplained", action="store_true", help="leave the explained ones out")
    parser.add_argument("--trust", action="store_true", help="that tests pass without a mutant")
    parser.add_argument("--log", type=Path, help="keep results here, and go on from there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
