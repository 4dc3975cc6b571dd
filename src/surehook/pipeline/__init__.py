"""The pipeline: a file per loop. process/components.py says what each does and how it is made, and
docs/reference/components.md, written from that, which tables it reads and writes.

    service       what each loop runs in: step, rest, wake, drain
    shares        the orchestrator's: who may have how many jobs, in which lane
    leases, signers, slots, results
                  the worker's: what it holds, who signs, how much more it may begin, what it writes
    registry, vitals, shared_figures
                  of the process: its heartbeat, its health and figures, those of the whole system

One component is one file, one database role and one SQL file. They meet only in the database, and
wake each other by hints (store/hints.py); a lost hint costs a moment. What answers a call without
a loop is in actions/.
"""
