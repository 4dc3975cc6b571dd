"""The harness around the scenarios: bounds that can be missed, schedules that a seed repeats."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from faults import __main__ as command
from faults import report, run
from faults.outages import Outage, outage_figures
from faults.publishers import Answer
from faults.scenario import ENGINES, PROMISES, Bound, Figures, Result, Scenario, judge
from faults.scenarios import ALL
from faults.schedule import dice_for, hits
from faults.world import World

TARGETS = {"worker": 3.0, "router": 1.0, "cleaner": 1.0}


class Sample(Scenario):
    name = "sample"
    fault = "nothing"
    bounds = (
        Bound("delay", at_most=5, unit="s"),
        Bound("kills", at_least=100, short=10),
        Bound("leases", exactly=6),
    )

    async def run(self, world: World) -> Figures:
        raise NotImplementedError


GOOD = {bound.figure: 0.0 for bound in PROMISES} | {"delay": 5.0, "kills": 10, "leases": 6}


def missed(**changed: float | None) -> tuple[str, ...]:
    figures = {name: value for name, value in (GOOD | changed).items() if value is not None}
    return judge(Sample(), "mariadb", figures, long=False, seconds=1.0).missed


def test_figures_within_their_bounds_pass() -> None:
    assert missed() == ()


@pytest.mark.parametrize("name", [bound.figure for bound in PROMISES])
def test_every_promise_can_be_missed(name: str) -> None:
    assert missed(**{name: 1.0}) == (f"{name} is 1, must be 0",)


def test_a_figure_beyond_its_bound_is_named_with_what_it_must_be() -> None:
    assert missed(delay=5.5) == ("delay is 5.5, must be ≤ 5 s",)
    assert missed(kills=9) == ("kills is 9, must be ≥ 10",)
    assert missed(leases=5) == ("leases is 5, must be 6",)


def test_a_figure_that_was_not_measured_is_missed() -> None:
    assert missed(lost=None) == ("lost was not measured",)


def test_a_long_run_has_the_full_count() -> None:
    assert judge(Sample(), "mariadb", GOOD, long=True, seconds=1.0).missed == (
        "kills is 10, must be ≥ 100",
    )


@pytest.mark.parametrize("scenario", ALL, ids=lambda one: one.name)
def test_every_scenario_says_what_it_breaks_and_what_must_hold(scenario: Scenario) -> None:
    assert scenario.fault and scenario.bounds
    names = [bound.figure for bound in scenario.all_bounds()]
    assert len(names) == len(set(names)) and set(scenario.engines) <= set(ENGINES)


def test_no_two_scenarios_have_the_same_name() -> None:
    assert len({one.name for one in ALL}) == len(ALL)


# ── The schedule ──────────────────────────────────────────────────────────────────────────────


def schedule(seed: int, scenario: str = "kill", engine: str = "mariadb") -> object:
    return hits(dice_for(seed, scenario, engine), 100, 20_000, TARGETS)


def test_a_seed_gives_the_same_schedule_again() -> None:
    assert schedule(7) == schedule(7)


def test_another_seed_scenario_or_engine_gives_another_schedule() -> None:
    assert len({schedule(7), schedule(8), schedule(7, "stop"), schedule(7, engine="x")}) == 4


def test_a_schedule_hits_every_target_within_the_load_and_in_order() -> None:
    found = hits(dice_for(1, "kill", "postgresql"), 12, 500, TARGETS)
    assert len(found) == 12 and {hit.target for hit in found} == set(TARGETS)
    assert [hit.after_events for hit in found] == sorted(hit.after_events for hit in found)
    assert all(0 < hit.after_events < 500 for hit in found)


# ── Outages ───────────────────────────────────────────────────────────────────────────────────

OUTAGE = Outage(began=10.0, ended=20.0, resumed=1.5)


def figures(*answers: Answer) -> dict[str, float]:
    return outage_figures([OUTAGE], answers)


def test_an_acknowledgement_of_a_request_that_began_while_the_database_was_down_is_found() -> None:
    assert figures(Answer(11, 11.1, 202))["acknowledged while down"] == 1


def test_an_acknowledgement_that_began_before_or_ended_after_is_none_of_those() -> None:
    before, after = Answer(9.9, 10.1, 202), Answer(19.9, 20.1, 202)
    assert figures(before, after)["acknowledged while down"] == 0


def test_the_slowest_refusal_and_every_answer_but_503_are_found() -> None:
    found = figures(Answer(9, 11.5, 503), Answer(12, 12.1, 500), Answer(13, 13.1, 0))
    assert found["slowest refusal"] == 2.5 and found["answers other than 503"] == 2
    assert found["refusals"] == 3 and found["slowest resume"] == 1.5


# ── The report ────────────────────────────────────────────────────────────────────────────────


def results() -> list[Result]:
    good = judge(Sample(), "mariadb", GOOD, long=False, seconds=1.0)
    bad = judge(Sample(), "postgresql", GOOD | {"lost": 2}, long=False, seconds=1.0)
    return [good, bad, Result("other", "a fault", "mariadb", not_run="no such program")]


RUN = report.Run("python -m faults --seed 7", 7, False, 2.5, ["mariadb 10.11.6"])


def test_the_table_and_the_lines_say_what_failed_and_what_was_not_run() -> None:
    table = report.table(results(), RUN)
    assert "seed 7" in table and "mariadb 10.11.6" in table
    assert table.count("| pass |") == 1 and table.count("| FAIL |") == 1
    assert "| postgresql |  | 2 | 0 |" in table and "| no such program | not run |" in table
    assert "lost is 2, must be 0" in report.line(results()[1])


def test_the_json_says_whether_all_passed() -> None:
    said = json.loads(report.as_json(results(), RUN))
    assert not said["passed"] and said["seed"] == 7
    assert [one["passed"] for one in said["results"]] == [True, False, True]


def test_the_table_replaces_what_stands_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_page("new", page)
    assert page.read_text() == f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n"


def test_the_page_of_the_project_has_the_markers() -> None:
    text = report.PAGE.read_text(encoding="utf-8")
    assert text.count(report.BEGIN) == text.count(report.END) == 1


def test_names_choose_scenarios_and_a_short_run_leaves_the_long_ones_out() -> None:
    assert [one.name for one in command.chosen(["kill"], [], long=False)] == ["kill"]
    assert command.chosen([], [], long=True) == list(ALL)
    assert not [one for one in command.chosen([], [], long=False) if one.long_only]


def test_a_scenario_can_be_left_out() -> None:
    rest = command.chosen([], ["soak"], long=True)
    assert len(rest) == len(ALL) - 1 and "soak" not in {one.name for one in rest}


def test_the_command_that_is_reported_chooses_the_same_run_again() -> None:
    given = ["--long", "--engine", "mariadb", "--without", "soak", "kill", "--seed", "7"]
    said = command._command(command._options(given), 7)
    assert said == "python -m faults --long --engine mariadb --without soak kill --seed 7"


def test_the_summary_has_a_row_for_each_result_and_says_how_many_failed() -> None:
    head, *rows, _, last = report.summary(results(), 2.5).splitlines()
    assert head.split()[:4] == ["scenario", "engine", "events", "lost"]
    assert [row.split()[0] for row in rows] == ["pass", "FAIL", "not"]
    assert last == "1 passed, 1 failed, 1 not run, in 2.5 minutes."


def test_an_error_inside_groups_is_said_in_its_own_words() -> None:
    error = ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("too much")])])
    assert run.in_words(error) == "ValueError: too much"


def test_what_is_said_of_the_machine_does_not_name_it() -> None:
    assert platform.node() not in report.machine() and "cores" in report.machine()
