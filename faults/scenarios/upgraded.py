"""An upgrade under load: the schema first, then one process after the other.

The program before the newest migration comes from git's history. It goes on running on the new
schema, beside the new program, until all of it has been replaced.
"""

from __future__ import annotations

from faults.scenario import Bound, Figures, Scenario
from faults.world import World, everything
from support.old_program import NoHistory, Previous, before_newest_migration
from support.receiver import Answer

ENGINES = {"postgresql": "postgres", "mariadb": "mysql"}  # the store's names of them
EVENTS, SHORT_EVENTS = 200, 30  # between two steps
# Requests are under way whenever a worker is told to end.
ANSWER_SECONDS = 0.3


class Upgraded(Scenario):
    name = "upgrade"
    fault = "an upgrade: the previous program and this one run together, on one schema"
    bounds = (
        Bound("processes replaced", exactly=sum(everything().values())),
        Bound("bad exits", at_most=0),
        Bound("extra sends", at_most=0),
    )

    def missing(self) -> str | None:
        try:
            for engine in ENGINES.values():
                before_newest_migration(engine)
        except NoHistory as reason:
            return f"the previous program cannot be had from git: {reason}"
        return None

    async def run(self, world: World) -> Figures:
        world.previous = Previous(ENGINES[world.engine], world.data / "previous")
        await world.open()
        old = await world.start_everything()
        await world.subscribe("a", "b")
        world.behave("b", lambda _: Answer(delay=ANSWER_SECONDS))
        world.previous = None
        pause = EVENTS if world.long else SHORT_EVENTS
        async with world.load(http=16, outbox=4):
            await world.offered_more(pause)
            await world.command("migrate")
            await world.offered_more(pause)
            world.dice.shuffle(old)
            for program in old:
                await program.terminate()
                await world.launch([world.successor(program)])
                await world.offered_more(pause)
        await world.settle()
        return {
            **await world.figures(),
            "processes replaced": sum(program.exit_code == 0 for program in old),
            "bad exits": sum(program.exit_code != 0 for program in old),
        }
