"""On which system each command acts, how it says so, and that a reading command makes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.commands import Done, run_command
from support.commandtree import COMMANDS, with_arguments
from support.servers import private_directory
from support.waiting import PATIENCE, PATIENT
from surehook.config import load
from surehook.embedded.directory import DataDirectory
from surehook.errors import Unreachable, UsageError
from surehook.process import system
from surehook.process.running import noted, programs

# These bring a system into being, or are one; every other command must find one.
CREATING = {"dev", "serve", "run", "migrate", "db start", "bench", "listen"}
WITHOUT_A_SYSTEM = {"config", "completion", "health", "init"}
ON_DATABASE = {
    *("key create", "key list", "key revoke", "doctor", "check", "db psql", "db upgrade"),
    *("installation show", "installation renew"),
}
ENDING = {"db status": 1, "db stop": 0}  # understood and answered, though there is nothing


READING = [
    *sorted(set(COMMANDS) - CREATING - WITHOUT_A_SYSTEM),
    *("migrate --status", "migrate --sql"),
]


def everything_below(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in (directory, *directory.rglob("*"))
    }


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user of this test's own, who is not root: the default directory lies in its home.
    PostgreSQL's account could reach it: what would be made there is made."""
    with private_directory() as directory:
        (directory / "home").mkdir(mode=0o711)
        (directory / "here").mkdir()
        monkeypatch.chdir(directory / "here")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "SUREHOOK_DATA_DIR"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(directory / "home"))
        yield directory / "home"
        monkeypatch.undo()


def command(home: Path, *arguments: str, **env: str) -> Done:
    return run_command(arguments, {"HOME": str(home), **env})


# ── Nothing runs ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", READING)
def test_where_nothing_is_a_reading_command_says_so_and_makes_nothing(
    home: Path, name: str
) -> None:
    before = everything_below(home.parent)
    done = command(home, *with_arguments(name), SUREHOOK_LISTEN="127.0.0.1:1")
    assert done.code == ENDING.get(name, 3), done
    assert "Traceback" not in done.err and "Usage" not in done.err
    if name not in ENDING:
        assert done.err.count("\n") == 1 and done.err.startswith("surehook: No "), done.err
        assert done.out == ""
    assert everything_below(home.parent) == before


@pytest.mark.parametrize("name", sorted(ON_DATABASE))
def test_a_named_directory_without_data_is_refused_and_not_made(home: Path, name: str) -> None:
    named = home / "named"
    done = command(home, *with_arguments(name), SUREHOOK_DATA_DIR=str(named))
    said = f"surehook: There is no database in {named} (SUREHOOK_DATA_DIR). "
    assert done.code == 3 and done.err.startswith(said)
    assert not named.exists()


@pytest.mark.parametrize("kind", ["file", "no number", "empty"])
def test_what_is_no_database_is_one_line(home: Path, kind: str) -> None:
    named = home / "named"
    if kind == "file":
        named.touch()
    else:
        (named / "postgres").mkdir(parents=True)
        (named / "postgres" / "PG_VERSION").write_text("x" if kind == "no number" else "")
    done = command(home, "check", SUREHOOK_DATA_DIR=str(named))
    assert done.code == 3 and done.err.count("\n") == 1 and "Traceback" not in done.err


def test_data_of_a_dev_that_does_not_run_is_pointed_at_and_not_used(home: Path) -> None:
    data = home / ".local" / "share" / "surehook-dev" / "postgres"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("17")
    done = command(home, "check")
    assert done.code == 3 and f"which does not run, is in {data.parent}." in done.err


def test_a_user_without_a_home_is_told_what_to_name(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    for name in ("check", "listen"):
        done = command(home, name)
        assert done.code == 2 and "has no home directory" in done.err and done.err.count("\n") == 1


def test_urls_of_components_alone_do_not_make_an_embedded_database(home: Path) -> None:
    url = "postgresql://router@db.example/surehook"
    before = everything_below(home)
    for name in ("run router", "check"):
        done = command(home, *name.split(), SUREHOOK_DATABASE_URL_ROUTER=url)
        assert done.code == 2 and "database.url is not set" in done.err
    assert everything_below(home) == before


# ── The rule ──────────────────────────────────────────────────────────────────────────────────


@contextmanager
def a_system(directory: Path, who: str | None, address: str | None = None) -> Iterator[str]:
    """A data directory whose server runs, as far as anybody can see, for this program."""
    data = DataDirectory(directory)
    data.cluster.mkdir(parents=True)
    (data.cluster / "PG_VERSION").write_text("17")
    lock = data.try_lock()
    assert lock is not None
    try:
        with ExitStack() as stack:
            if who is not None:
                note = stack.enter_context(noted(who, str(directory), embedded=True))
                if address is not None:
                    note.serves(address, kept_key=who == "surehook dev")
            yield str(directory)
    finally:
        os.close(lock)


def chosen(**environment: str) -> system.System:
    return system.chosen(load(Path(os.devnull), environment))


def test_the_system_that_runs_is_chosen_wherever_its_data_lies(home: Path) -> None:
    for who in ("surehook dev", "surehook serve", "surehook run worker"):
        with a_system(home / who, who) as directory:
            assert str(chosen()) == f"the database in {directory} (`{who}` runs on it)"
    with pytest.raises(Unreachable):
        chosen()


def test_a_running_dev_wins_over_data_in_the_default_directory(home: Path) -> None:
    default = home / ".local" / "share" / "surehook"
    with a_system(default, None):
        assert str(chosen()) == f"the database in {default} (its server runs)"
    assert str(chosen()) == f"the database in {default} (the default directory)"
    with a_system(home / "dev", "surehook dev") as directory:
        assert chosen().database == directory


def test_what_is_named_wins_over_what_runs(home: Path) -> None:
    url = "postgresql://owner:sesame@db.example/surehook"
    with a_system(home / "other", None) as other, a_system(home / "dev", "surehook dev"):
        assert str(chosen(SUREHOOK_DATA_DIR=other)).endswith(f"{other} (SUREHOOK_DATA_DIR)")
        for variable in ("SUREHOOK_DATABASE_URL", "DATABASE_URL"):
            named = {variable: url, "SUREHOOK_DATA_DIR": other, "SUREHOOK_ROLES": "off"}
            said = f"postgresql://owner:…@db.example/surehook ({variable})"
            assert str(chosen(**named)) == said
        file = home / "surehook.toml"
        file.write_text(f'[database]\ndata_dir = "{other}"\n')
        said = str(system.chosen(load(file, {})))
        assert said == f"the database in {other} (database.data_dir in {file})"


def test_of_two_that_run_one_has_to_be_named(home: Path) -> None:
    default = home / ".local" / "share" / "surehook"
    with (
        a_system(home / "dev", "surehook dev", "127.0.0.1:1") as dev,
        a_system(default, "surehook serve", "0.0.0.0:2"),
    ):
        both = (
            f"2 systems run here: `surehook dev` at http://127.0.0.1:1 on the database in {dev}; "
            f"`surehook serve` at http://127.0.0.1:2 on the database in {default}."
        )
        for name in ("check", "key list", "db psql", "event list", "publish"):
            done = command(home, *with_arguments(name))
            assert done.code == 2 and both in done.err and "Name one with" in done.err, name
        assert chosen(SUREHOOK_DATA_DIR=dev).database == dev


def test_of_two_that_run_the_named_database_leads_to_its_api_too(home: Path) -> None:
    with (
        a_system(home / "dev", "surehook dev", "127.0.0.1:1") as dev,
        a_system(home / "other", "surehook serve", "127.0.0.1:2") as other,
    ):
        for directory, port in ((dev, 1), (other, 2)):
            env = {"SUREHOOK_DATA_DIR": directory, "SUREHOOK_API_KEY": "shk_x"}
            assert command(home, "event", "list", **env).system.startswith(
                f"http://127.0.0.1:{port} (`surehook "
            )
        env = {"SUREHOOK_DATABASE_URL": "postgresql://h/d", "SUREHOOK_API_KEY": "shk_x"}
        elsewhere = command(home, "event", "list", **env, SUREHOOK_LISTEN="127.0.0.1:3")
        assert elsewhere.system == "http://127.0.0.1:3 (api.listen in SUREHOOK_LISTEN)"


def test_several_programs_of_one_system_are_one(home: Path) -> None:
    with (
        a_system(home / "data", "surehook run worker") as directory,
        noted("surehook run api", directory, embedded=True) as note,
    ):
        note.serves("[::]:4")
        found = system.running()
        assert [one.database for one in found] == [directory]
        assert found[0].program is not None and found[0].program.api_url == "http://[::1]:4"


def test_a_system_on_a_database_that_is_not_configured_here_is_named(home: Path) -> None:
    url = "postgresql://owner@db.example/surehook"
    with noted("surehook serve", url, embedded=False):
        with pytest.raises(UsageError, match=f"runs on {url}, which is not configured here"):
            chosen()
        done = command(home, "db", "psql")  # is about embedded ones only
        assert done.code == 3 and "No surehook runs here" in done.err
    assert programs() == []


def test_the_note_of_a_killed_program_does_not_count_and_is_removed_by_the_next(home: Path) -> None:
    program = (
        "import os, signal\nfrom surehook.process.running import noted\n"
        "with noted('surehook dev', 'postgresql://h/d', embedded=False):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "HOME": str(home)})
    assert done.returncode == -signal.SIGKILL
    notes = home / ".local" / "state" / "surehook" / "running"
    assert len(list(notes.iterdir())) == 1 and programs() == []
    with noted("surehook dev", "postgresql://h/d", embedded=False):
        assert len(list(notes.iterdir())) == 1 and len(programs()) == 1
    assert list(notes.iterdir()) == []


def test_a_program_runs_where_no_note_can_be_kept(home: Path) -> None:
    (home / ".local").touch()
    with noted("surehook serve", "postgresql://h/d", embedded=False) as note:
        note.serves("127.0.0.1:1")
        assert programs() == []


def test_db_is_for_the_embedded_database_whatever_else_is_configured(home: Path) -> None:
    before = everything_below(home)
    for variable in ("SUREHOOK_DATABASE_URL", "DATABASE_URL"):
        for name in ("start", "stop", "status", "url", "psql", "upgrade"):
            done = command(home, "db", name, **{variable: "postgresql://shop@db.example/shop"})
            assert done.code == 2 and f"{variable} names another database" in done.err, name
    assert everything_below(home) == before


# ── While dev runs ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def dev(home: Path) -> Iterator[Path]:
    """A `surehook dev` that has greeted; its data directory."""
    with private_directory() as directory:
        kept = {n: v for n, v in os.environ.items() if "SUREHOOK" not in n and n != "DATABASE_URL"}
        own = {"HOME": str(home), "SUREHOOK_CONFIG": os.devnull, "SUREHOOK_LISTEN": "127.0.0.1:0"}
        process = subprocess.Popen(
            [sys.executable, "-m", "surehook", "dev", "--data-dir", str(directory / "dev")],
            env={**kept, **PATIENT, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None and process.stderr is not None
            assert any("Ctrl-C ends" in line for line in process.stdout), process.stderr.read()
            yield directory / "dev"
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)


def test_while_dev_runs_every_command_acts_on_it_and_says_so(home: Path, dev: Path) -> None:
    def run(*arguments: str, **env: str) -> Done:
        done = command(home, *arguments, **env)
        assert done.code == 0, (arguments, done.err, done.out)
        return done

    database = f"the database in {dev} (`surehook dev` runs on it)"
    made = run("key", "create", "--name", "shop", "--scope", "ingest", "--json")
    assert made.system == database and made.json()["id"] == 1
    published = run("publish", "order.paid", "{}", SUREHOOK_API_KEY=made.json()["key"])
    assert published.system.endswith(" (`surehook dev` runs there)")
    assert run("event", "list", "--json").lines()[0]["event_type"] == "order.paid"
    for name in ("key list", "doctor", "check", "migrate --status", "migrate", "db status"):
        assert run(*name.split()).system == database
    assert run("doctor", "--json").json()["fit"] is True
    assert str(dev) in run("db", "url").out
    code = "SELECT name FROM api_keys"
    # psql writes past what the test reads: its exit code says whether the key is there.
    assert (
        command(home, "db", "psql", "--", "-qXtc", f"SELECT 1/count(*) FROM ({code}) s").code == 0
    )
    refused = command(home, "db", "stop")
    assert refused.code == 3 and "belongs to" in refused.err
    assert not (home / ".local" / "share").exists()
