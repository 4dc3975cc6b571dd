"""Run: scenarios on engines, each in its own world.

Reads   nothing
Writes  logs of failed scenarios in the temporary directory; a line per result to the output
"""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import uvloop

from faults import report
from faults.databases import Home, postgres_binaries
from faults.scenario import Result, Scenario, judge
from faults.scenarios import ALL
from faults.schedule import dice_for
from faults.world import World


async def run_one(scenario: Scenario, engine: str, seed: int, long: bool) -> Result:
    """In its own world, which is gone afterwards; logs stay if it fails."""
    began = time.monotonic()
    logs = Path(tempfile.mkdtemp(prefix=f"surehook-faults-{scenario.name}-{engine}-"))
    with Home() as home:
        world = World(engine, logs, home.path, dice_for(seed, scenario.name, engine), long=long)
        try:
            figures = await scenario.run(world)
            result = judge(scenario, engine, figures, long, time.monotonic() - began)
        except Exception as error:  # a scenario that breaks down has not passed
            (logs / "error.txt").write_text("".join(traceback.format_exception(error)))
            result = Result(scenario.name, scenario.fault, engine, error=in_words(error))
        finally:
            await world.close()
        result = replace(result, seconds=time.monotonic() - began)
        if result.passed:
            shutil.rmtree(logs, ignore_errors=True)
            return result
        keep_log_of_servers(home.path, logs)
        return replace(result, logs=str(logs))


def in_words(error: BaseException) -> str:
    """A group of errors says nothing itself; the first of them does."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def keep_log_of_servers(data: Path, logs: Path) -> None:
    for log in data.glob("*/log"):
        if log.is_file():
            shutil.copy(log, logs / f"{log.parent.name}.server.log")


async def run_all(scenarios: list[Scenario], engine: str, seed: int, long: bool) -> list[Result]:
    """Those that there are for this engine, one after the other."""
    results = []
    for scenario in scenarios:
        if engine not in scenario.engines:
            continue
        lacking = scenario.missing()
        if lacking is not None:
            result = Result(scenario.name, scenario.fault, engine, not_run=lacking)
        else:
            result = await run_one(scenario, engine, seed, long)
        print(report.line(result), flush=True)
        results.append(result)
    return results


def run_engine(names: list[str], engine: str, seed: int, long: bool) -> list[Result]:
    postgres_binaries()  # found now: looking for them changes the account of the whole process
    return uvloop.run(run_all([one for one in ALL if one.name in names], engine, seed, long))


def run_engines(names: list[str], engines: list[str], seed: int, long: bool) -> list[Result]:
    """Side by side, for most of the time is waiting; each in its own process, so that none waits
    for the other. In the order of the table."""
    with ProcessPoolExecutor(len(engines), get_context("spawn")) as pool:
        runs = [pool.submit(run_engine, names, engine, seed, long) for engine in engines]
        found = [result for run in runs for result in run.result()]
    return sorted(found, key=lambda one: (names.index(one.scenario), engines.index(one.engine)))
