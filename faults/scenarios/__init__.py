"""The scenarios, one file each, in the order of the table. A new one is named here."""

from __future__ import annotations

from faults.scenario import Scenario
from faults.scenarios.clock_off import ClockOff
from faults.scenarios.connections_taken import ConnectionsTaken
from faults.scenarios.database_stopped import DatabaseStopped
from faults.scenarios.disk_full import DiskFull
from faults.scenarios.embedded_killed import EmbeddedKilled
from faults.scenarios.failover import Failover, FailoverAsync
from faults.scenarios.held_transaction import HeldTransaction
from faults.scenarios.killed import Killed
from faults.scenarios.network import Network
from faults.scenarios.poisoned import Poisoned
from faults.scenarios.restarted import Restarted
from faults.scenarios.same_id import SameId
from faults.scenarios.soaked import Soaked
from faults.scenarios.started_early import StartedEarly
from faults.scenarios.stopped_worker import StoppedWorker
from faults.scenarios.upgraded import Upgraded

ALL: tuple[Scenario, ...] = (
    Killed(),
    Restarted(),
    DatabaseStopped(),
    EmbeddedKilled(),
    StartedEarly(),
    ConnectionsTaken(),
    Network(),
    Failover(),
    FailoverAsync(),
    DiskFull(),
    ClockOff(),
    Poisoned(),
    HeldTransaction(),
    SameId(),
    StoppedWorker(),
    Upgraded(),
    Soaked(),
)
