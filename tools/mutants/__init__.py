"""Mutants: the program with one small fault each, to see whether a test notices.

    python -m tools.mutants                       every mutant (hours on a small machine)
    python -m tools.mutants --only apply_results  those whose name has this in it
    python -m tools.mutants --list                which there are

sql.py makes mutants of SQL, python.py of Python; targets.py says of which files and statements, and
which tests should notice. What survives is either killed by a new test or explained, with a
sentence, in explained.toml. Not part of `make test`.

mutmut and its like mutate Python only, while what matters most here are the conditions of SQL: each
statement's compare-and-set, and the triggers. They also start everything anew for each mutant; here
the database servers stay, and a mutant costs what its first failing test costs.
"""
