"""Board and alerts name only what exists, use all that exists, and fire when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from surehook.observe.facts import FACTS
from surehook.observe.metrics import METRICS
from tools.board import board

REPOSITORY = Path(__file__).parents[2]
RULES = REPOSITORY / "deploy" / "prometheus" / "alerts.yml"
RULE_TESTS = RULES.with_name("alerts_test.yml")
RUNBOOK = REPOSITORY / "docs" / "operate" / "runbook.md"
# Metrics that neither the board nor an alert needs, and why: none.
EXCUSED: dict[str, str] = {}


def rules() -> list[Any]:
    [group] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def panels() -> list[Any]:
    return [one for one in json.loads(board())["panels"] if one["type"] != "row"]


def expressions() -> dict[str, str]:
    """Of the board and the rules, by where they stand."""
    read = json.loads(board())
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    for panel in panels():
        found |= {f"{panel['title']} {one['refId']}": one["expr"] for one in panel["targets"]}
    return found | {"annotation": read["annotations"]["list"][0]["expr"]}


def metrics_in(expression: str) -> set[str]:
    """A histogram's parts count as the histogram."""
    named = set(re.findall(r"\bsurehook_\w+", expression))
    return {
        name if name in METRICS else re.sub(r"_(bucket|sum|count)$", "", name) for name in named
    }


def test_every_metric_that_board_and_alerts_name_exists() -> None:
    for where, expression in expressions().items():
        assert metrics_in(expression) <= set(METRICS), where


def test_every_metric_is_used_or_excused() -> None:
    used = {name for expression in expressions().values() for name in metrics_in(expression)}
    assert set(METRICS) - used == set(EXCUSED)


def test_every_label_and_fact_that_is_asked_for_exists() -> None:
    for where, expression in expressions().items():
        for metric, selector in re.findall(r"(surehook_\w+)\{([^}]*)\}", expression):
            [name] = metrics_in(metric)
            labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selector))
            assert labels <= {*METRICS[name][1], "instance"}, where
        for fact in re.findall(r'fact="([^"]+)"', expression):
            assert fact in FACTS, where


def test_figures_of_the_whole_system_are_never_added_up() -> None:
    """Every process with the API shows the same ones."""
    whole = r"surehook_(backlog|components_running|system_age|database_bytes)\w*"
    for where, expression in expressions().items():
        assert not re.search(rf"sum[^()]*\({whole}", expression), where


def test_every_panel_has_a_unit_and_its_own_place() -> None:
    places = set()
    for panel in panels():
        at = panel["gridPos"]
        places.add((at["x"], at["y"]))
        assert panel["fieldConfig"]["defaults"]["unit"] and panel["targets"]
        assert at["x"] + at["w"] <= 24
    assert len(places) == len(panels())


def test_every_alert_has_a_section_in_the_runbook_and_back() -> None:
    text = RUNBOOK.read_text(encoding="utf-8")
    sections = re.findall(r"^## (\w+)\n\*(\w+)\.\*", text, re.MULTILINE)
    assert sections == [(rule["alert"], rule["labels"]["severity"]) for rule in rules()]
    for rule in rules():
        anchor = f"docs/operate/runbook.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook_url"] == anchor


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    cases = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
    fired = {
        one["alertname"] for case in cases for one in case["alert_rule_test"] if one["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in rules()}


def test_prometheus_accepts_the_rules_and_they_fire_when_they_should() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("NOT SHOWN: that the alerts fire when they should (no promtool)")
    checks = (["check", "config", "prometheus.yml"], ["test", "rules", RULE_TESTS.name])
    for arguments in checks:
        done = subprocess.run(
            [promtool, *arguments], cwd=RULES.parent, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
