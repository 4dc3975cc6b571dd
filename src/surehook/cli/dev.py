"""`surehook dev`: everything on this machine, shown to a person, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from surehook.cli import Invocation
from surehook.cli.output import safe
from surehook.cli.serve import make_ready, processes_option
from surehook.config import Config
from surehook.errors import Declined, UsageError
from surehook.observe import log
from surehook.process.database import embedded_server, open_access
from surehook.process.group import useful_processes
from surehook.process.serve import event_loop
from surehook.process.system import created_by
from surehook.receiver.listen import Arrival
from surehook.store.logins import DatabaseAccess

if TYPE_CHECKING:
    from surehook.process.dev import Development, Ready
    from surehook.process.running import Note
    from surehook.receiver.certificates import Certificates

PAYLOAD_SHOWN_MAX = 120
READER_LOOK_SECONDS = 0.5


@click.command(
    help="Run everything here, database included, and deliver a first webhook.\n\n"
    "Its data lies apart from other programs' (it says where): --data-dir, else the configured "
    "database, else /var/lib/surehook-dev for root and ~/.local/share/surehook-dev for others. "
    "While it runs, other commands act on it unless another system is named."
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Where the embedded database lies.",
)
@processes_option
@click.pass_obj
def dev(invocation: Invocation, data_dir: Path | None, processes: int | None) -> None:
    from surehook.process.running import noted
    from surehook.receiver import certificates
    from surehook.receiver.statedir import state_directory

    began = time.monotonic()
    files = certificates.kept(state_directory())
    config = _configured(invocation, files, data_dir, processes)
    log.start(config.text("log.level"), config.text("log.format"))
    click.secho(f"surehook: starting {_database(config)} …", dim=True)
    with open_access(config) as access, event_loop() as runner:
        _refuse_borrowed_server(config)
        system = created_by(config)
        with noted("surehook dev", system.database, embedded=system.embedded) as note:
            runner.run(_run(config, access, files, began, note))
    click.secho("\nsurehook: stopped; everything is kept for the next time.", dim=True)


def _configured(
    invocation: Invocation, files: Certificates, data_dir: Path | None, processes: int | None
) -> Config:
    """The user's configuration, and what is different here."""
    from surehook.process.dev import free_address, kept_key
    from surehook.receiver.statedir import state_directory

    given = invocation.config()
    chosen = chosen_data_dir(given, data_dir)
    return invocation.config(
        {
            "database.data_dir": str(chosen) if chosen else None,
            "serve.processes": processes,
            "log.level": "warning",  # what people should see is shown otherwise
            "log.format": "text",
            "api.listen": free_address(given.text("api.listen")),
            "api.admin_key": given.optional_text("api.admin_key") or kept_key(state_directory()),
            "delivery.ca_file": str(_trusted(files, given.optional_path("delivery.ca_file"))),
            "delivery.allow_networks": [
                *(str(network) for network in given.allow_networks),
                "127.0.0.0/8",
                "::1/128",
            ],
        }
    )


def chosen_data_dir(given: Config, named: Path | None) -> Path | None:
    """Where the embedded database is to lie; None where another one is configured."""
    from surehook.embedded import development_data_dir

    if given.embedded:
        configured = named or given.optional_path("database.data_dir")
        return (configured or development_data_dir()).absolute()
    if named is not None:
        source = given.origins["database.url"].source
        raise UsageError(
            "--data-dir is for the embedded database, but another one is configured "
            f"(database.url in {source}).",
            "Leave out one of them.",
        )
    return None


def _database(config: Config) -> str:
    if config.embedded:
        return f"the database in {config.optional_path('database.data_dir')}"
    return f"on the database of {config.origins['database.url'].source}"


def _trusted(files: Certificates, others: Path | None) -> Path:
    """The authority of the local receiver, and those that the user trusts."""
    from surehook.delivery.dialer import tls_context
    from surehook.receiver.certificates import trusted_beside

    if others is None:
        return files.ca_file
    tls_context(str(others))  # refuses by its own name a file that cannot be used
    return trusted_beside(files, others)


def _refuse_borrowed_server(config: Config) -> None:
    """A server that ends with some other program would be taken from under us, and a second `dev`
    would take the receiver's subscription from the first."""
    from surehook.embedded.directory import in_use

    holder = embedded_server(config).holder if config.embedded else None
    if holder is not None and not holder.detached and holder.pid != os.getpid():
        raise in_use(embedded_server(config).data_dir, holder)


async def _run(
    config: Config, access: DatabaseAccess, files: Certificates, began: float, note: Note
) -> None:
    from surehook.process.dev import Development

    await _make_ready(config, access)
    processes = config.optional_number("serve.processes") or useful_processes()
    development = Development(config, access, files, _show, note, processes)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, development.stop)
    watch = loop.create_task(_stop_when_unread(development))
    try:
        await development.run(_greet, began)
    finally:
        watch.cancel()


async def _stop_when_unread(development: Development) -> None:
    """Whoever reads what we show may have seen enough (`| head`) while there is nothing to show."""
    try:
        output = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return  # closed, or no file
    poll = select.poll()
    poll.register(output, 0)  # poll always reports errors: the reader has gone
    while not poll.poll(0):  # noqa: ASYNC110 — no loop reports it
        await asyncio.sleep(READER_LOOK_SECONDS)
    development.stop()


async def _make_ready(config: Config, access: DatabaseAccess) -> None:
    try:
        await make_ready(config, access, "api")
    except Declined as refused:  # the data is of another version of this program
        if config.embedded:
            where = config.optional_path("database.data_dir")
            refused.advice += f" The data is in {where}; to begin anew name another --data-dir."
        raise


def _greet(ready: Ready) -> None:
    from surehook.process.dev import EVENT_TYPE

    rows = (
        ("API", ready.api_url, "cyan"),
        ("documentation", f"{ready.api_url}/docs", "cyan"),
        ("key", ready.key, ""),
        ("receiver", f"{ready.receiver_url}  (subscription {ready.subscription_id})", ""),
        ("own endpoint", "https://localhost:PORT is trusted with this certificate:", ""),
        ("", str(ready.server_file), ""),
    )
    click.echo()
    click.secho(f"First webhook delivered after {ready.seconds:.1f} s.", bold=True, fg="green")
    for name, value, colour in rows:
        click.echo(
            f"  {click.style(f'{name:<14}', dim=True)}{click.style(value, fg=colour or None)}"
        )
    click.secho("\nPublish another one:\n", bold=True)
    click.echo(
        f"  curl {ready.api_url}/v1/events \\\n"
        f"    -H 'authorization: Bearer {ready.key}' \\\n"
        "    -H 'content-type: application/json' \\\n"
        f'    -d \'{{"event_type": "{EVENT_TYPE}", "payload": {{"number": 2}}}}\'\n'
    )
    click.secho(
        "Deliveries to this receiver appear below; `surehook tail` shows all.\nCtrl-C ends it.\n",
        dim=True,
    )


def _show(arrival: Arrival) -> None:
    """One line per request that the local receiver gets."""
    what = "verification challenge" if arrival.challenge else safe(arrival.event_type)
    good = arrival.message is not None
    verdict = "verified" if good else arrival.reason
    body = "" if arrival.challenge else safe(arrival.body.decode("utf-8", "replace"))
    if len(body) > PAYLOAD_SHOWN_MAX:
        body = body[: PAYLOAD_SHOWN_MAX - 1] + "…"
    time_shown = f"{arrival.at.astimezone():%H:%M:%S}"
    click.echo(
        f"{click.style(time_shown, dim=True)}  {click.style(str(arrival.status), bold=True)}  "
        f"{click.style(verdict, fg='green' if good else 'red')}  {click.style(what, fg='cyan')}  "
        f"{click.style(safe(arrival.webhook_id), dim=True)}  {body}"
    )
