"""`surehook listen`: receive webhooks on this machine, check them and show them.

Reads   the options, SUREHOOK_SECRET, what is sent to it
Writes  certificates in its state directory; what it shows. Never a secret.
"""

from __future__ import annotations

import json
import queue
import signal
import socket
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from surehook.cli.arguments import Finite
from surehook.cli.output import safe
from surehook.errors import Unreachable, UsageError
from surehook.model.wording import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from surehook.receiver.forward import Forward, Forwarded
    from surehook.receiver.listen import Arrival, Listener

PAYLOAD_LINES_MAX = 24
PAYLOAD_WIDTH_MAX = 400
ONE_LINE_MAX = 80
DELAY_SECONDS_MAX = 86400


@dataclass(frozen=True)
class Answers:
    """What the options say about answers."""

    status: int | None
    fail: int
    hang: bool
    delay: float
    forward_to: str | None = None

    def apply(self, listener: Listener) -> None:
        from surehook.receiver.listen import Behaviour

        wrong = Behaviour(self.status or 500, self.delay, self.hang)
        right = Behaviour(200, self.delay)
        if self.fail:
            listener.next.extend([wrong] * self.fail)
            listener.usual = right
        else:
            listener.usual = wrong if self.status or self.hang else right

    def __str__(self) -> str:
        if self.forward_to:
            return f"what {self.forward_to} answers"
        wrong = "no answer" if self.hang else str(self.status or 500)
        late = f", after {self.delay:g} s" if self.delay else ""
        if self.fail:
            return f"{wrong} to the first {self.fail}, then 200{late}"
        return (wrong if self.status or self.hang else "200") + late


@click.command(help="Receive webhooks on this machine over HTTPS, check them and show them.")
@click.option(
    "--port",
    default=8443,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port; 0 takes any that is free.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    envvar="SUREHOOK_SECRET",
    metavar="whsec_…",
    help="Check signatures with it; may be repeated. Else from SUREHOOK_SECRET.",
)
@click.option("--status", type=click.IntRange(200, 599), help="Answer with this status …")
@click.option(
    "--fail", default=0, type=click.IntRange(0), metavar="N", help="… to the first N only (500)."
)
@click.option("--hang", is_flag=True, help="Do not answer at all.")
@click.option(
    "--delay", default=0.0, type=Finite(0, DELAY_SECONDS_MAX), help="Seconds before an answer."
)
@click.option(
    "--forward-to",
    metavar="URL",
    help="Hand deliveries on to this application, and pass its answer on.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N deliveries.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the certificates are kept.",
)
def listen(
    port: int,
    host: str,
    secrets: tuple[str, ...],
    status: int | None,
    fail: int,
    hang: bool,
    delay: float,
    forward_to: str | None,
    count: int | None,
    as_json: bool,
    state_dir: Path | None,
) -> None:
    from surehook.receiver import certificates

    _refuse_odd_secrets(secrets)
    if forward_to is not None and (status or fail or hang or delay):
        raise UsageError(
            "--forward-to passes on what the application answers.",
            "Leave out --status, --fail, --hang and --delay.",
        )
    forward = _forward(forward_to)
    files = certificates.kept(state_dir or certificates.state_directory(), _names(host))
    arrivals: queue.SimpleQueue[Arrival | None] = queue.SimpleQueue()
    answers = Answers(status, fail, hang, delay, forward_to)
    for number in (signal.SIGTERM, signal.SIGINT):  # how one ends it
        signal.signal(number, lambda *_: arrivals.put(None))
    listener = _listener(arrivals, files.server_file, secrets, host, port, forward)
    answers.apply(listener)
    where = Where(f"https://{_shown_host(host)}:{listener.port}", files.ca_file)
    show = Lines(where) if as_json else Screen(where, answers, bool(secrets))
    try:
        _follow(arrivals, show, count)
    finally:
        listener.close(patience=delay + 1)  # an application may take longer: it is cut off
        show.end()


def _follow(
    arrivals: queue.SimpleQueue[Arrival | None], show: Lines | Screen, count: int | None
) -> None:
    """Show what arrives, in the main thread, until it is enough or someone says stop."""
    deliveries = 0
    while count is None or deliveries < count:
        arrival = arrivals.get()
        if arrival is None:
            return
        show.arrival(arrival)
        deliveries += not arrival.challenge


def _refuse_odd_secrets(secrets: tuple[str, ...]) -> None:
    """Before anything starts, and without showing one."""
    from surehook.receive import NotGenuine, verify

    try:
        sample = {"webhook-id": "x", "webhook-timestamp": "0", "webhook-signature": "v1,x"}
        verify(sample, b"", list(secrets), now=0)
    except NotGenuine:
        return
    except ValueError:
        raise UsageError(
            "A --secret is not of the form whsec_<base64> (or whpk_<base64>).",
            "Copy it whole, as it was shown when the subscription was created.",
        ) from None


def _forward(url: str | None) -> Forward | None:
    from surehook.receiver.forward import Forward

    try:
        return None if url is None else Forward(url)
    except ValueError as wrong:
        raise UsageError(f"--forward-to must be {wrong}; this is {url!r}.") from None


def _listener(
    arrivals: queue.SimpleQueue[Arrival | None],
    server_file: Path,
    secrets: tuple[str, ...],
    host: str,
    port: int,
    forward: Forward | None,
) -> Listener:
    from surehook.receiver.listen import Listener

    try:
        return Listener(
            arrivals.put, server_file, secrets=secrets, host=host, port=port, forward=forward
        )
    except OSError as error:
        raise Unreachable(
            f"Cannot listen on {host}:{port}: {error.strerror or error}.",
            "Choose another --port, or 0 for any that is free.",
        ) from None


def _names(host: str) -> list[str]:
    """The names that the certificate must have: this machine's own, and the host's."""
    from surehook.receiver.certificates import LOCAL_NAMES

    names = list(LOCAL_NAMES)
    extra = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104
    return names if extra in names or not extra else [*names, extra]


def _shown_host(host: str) -> str:
    if host in ("127.0.0.1", "::1"):
        return "localhost"
    if host in ("0.0.0.0", "::"):  # noqa: S104
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


# ── What is shown ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Where:
    url: str
    ca_file: Path


class Lines:
    """For programs: one JSON object per line."""

    def __init__(self, where: Where) -> None:
        self._write({"listening": where.url, "ca_file": str(where.ca_file)})

    def arrival(self, arrival: Arrival) -> None:
        self._write(
            {
                "at": arrival.at.isoformat(),
                "status": arrival.status,
                "verified": arrival.message is not None,
                "reason": arrival.reason or None,
                "challenge": arrival.challenge,
                "event_type": arrival.event_type,
                "webhook_id": arrival.webhook_id,
                "attempt": arrival.attempt,
                "path": arrival.path,
                "bytes": len(arrival.body),
                "payload": _parsed(arrival.body),
                **_forwarded(arrival.forwarded),
            }
        )

    def end(self) -> None:
        """Nothing more to say."""

    def _write(self, line: dict[str, Any]) -> None:
        click.echo(json.dumps(line))


@dataclass
class Screen:
    """For people: a line and the payload per delivery, in colour where there is colour."""

    where: Where
    answers: Answers
    checked: bool
    _console: Console = field(init=False)
    _seen: Counter[str] = field(default_factory=Counter, init=False)
    _shown: tuple[str, bytes] = field(default=("", b""), init=False)

    def __post_init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, soft_wrap=True)
        checks = "checked" if self.checked else "not checked; give --secret whsec_…"
        rows = (
            ("endpoint", self.where.url, "bold cyan"),
            ("trust", f"export SUREHOOK_CA_FILE={self.where.ca_file}", ""),
            ("allow", "export SUREHOOK_ALLOW_NETWORKS=127.0.0.0/8,::1/128", ""),
            ("signatures", checks, "" if self.checked else "yellow"),
            ("answers", str(self.answers), ""),
        )
        self._console.print("surehook listens", style="bold")
        for name, value, style in rows:
            self._console.print(_text((f"  {name:<11}", "dim"), (value, style)))
        self._console.print(_text(("  Ctrl-C ends it", "dim")))

    def arrival(self, arrival: Arrival) -> None:
        self._show(arrival)
        if arrival.forwarded is not None:
            self._console.print(_outcome(arrival.forwarded))

    def _show(self, arrival: Arrival) -> None:
        self._seen["challenge" if arrival.challenge else "delivery"] += 1
        self._seen["not genuine"] += arrival.message is None and self.checked
        self._console.print()
        self._console.print(self._headline(arrival))
        if arrival.challenge and arrival.message is not None:
            self._console.print(_text(("  answered with the proof that we hold the secret", "dim")))
            return
        if arrival.challenge and arrival.forwarded is None:
            advice = "without the secret no proof was given: send the code back through the API"
            self._console.print(_text((f"  {advice}", "yellow")))
        if arrival.attempt > 1 and self._shown == (arrival.webhook_id, arrival.body):
            self._console.print(_text(("  the same payload again", "dim")))
            return
        self._shown = (arrival.webhook_id, arrival.body)
        body = _pretty(arrival.body)
        for line in body[:PAYLOAD_LINES_MAX]:
            self._console.print(_coloured_json(line))
        if len(body) > PAYLOAD_LINES_MAX:
            left = len(body) - PAYLOAD_LINES_MAX
            self._console.print(_text((f"  … {left} more lines", "dim")))

    def _headline(self, arrival: Arrival) -> Text:
        if arrival.message is not None:
            verdict = ("✓ verified", "green")
        elif self.checked:
            verdict = (f"✗ {arrival.reason}", "bold red")
        else:
            verdict = ("? not checked", "yellow")
        status = "hangs" if arrival.status is None else str(arrival.status)
        good = arrival.status is not None and arrival.status < 300
        what = "challenge" if arrival.challenge else arrival.event_type or "(no event type)"
        again = arrival.attempt > 1
        return _text(
            (f"{arrival.at.astimezone():%H:%M:%S.%f}"[:-3] + "  ", "dim"),
            (f"{status:<6}", "bold green" if good else "bold red"),
            (f"{verdict[0]}  ", verdict[1]),
            (safe(what) + "  ", "bold cyan" if not arrival.challenge else "bold magenta"),
            (safe(arrival.webhook_id or "(no webhook-id)") + "  ", ""),
            (f"attempt {arrival.attempt}  ", "yellow" if again else "dim"),
            (f"{_size(len(arrival.body))}  {safe(arrival.path)}", "dim"),
        )

    def end(self) -> None:
        plurals = (("delivery", "deliveries"), ("challenge", "challenges"))
        seen = [
            counted(self._seen[one], one, many)
            for one, many in (*plurals, ("not genuine", "not genuine"))
            if self._seen[one]
        ]
        self._console.print(_text((f"\nreceived: {', '.join(seen) or 'nothing'}", "dim")))


def _forwarded(found: Forwarded | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {
        "forwarded": {
            "url": found.url,
            "status": found.status,
            "milliseconds": found.milliseconds,
            "reason": found.reason or None,
        }
    }


def _outcome(found: Forwarded) -> Text:
    """One line: what the application made of it, and what the sender gets."""
    where = ("  → " + safe(found.url), "dim")
    if found.reason:
        return _text(where, (f"  {safe(found.reason)}; passed on: {found.passed_on}", "bold red"))
    good = found.status is not None and found.status < 300
    took = (f" in {found.milliseconds:.0f} ms", "dim")
    return _text(where, (f"  answered {found.status}", "green" if good else "bold red"), took)


def _text(*parts: tuple[str, str]) -> Text:
    from rich.text import Text

    return Text.assemble(*parts)


def _coloured_json(line: str) -> Text:
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    text = Text("  " + line)
    JSONHighlighter().highlight(text)
    return text


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")


def _pretty(body: bytes) -> list[str]:
    """The payload's lines, indented; what is not JSON as it is. Nothing that moves a cursor."""
    try:
        text = _laid_out(json.loads(body), 0)
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "backslashreplace")
    lines = [safe(line) for line in text.split("\n")]
    return [
        f"{line[:PAYLOAD_WIDTH_MAX]} …" if len(line) > PAYLOAD_WIDTH_MAX else line for line in lines
    ]


def _laid_out(value: Any, indent: int) -> str:
    """JSON on one line where it fits, else one item per line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= ONE_LINE_MAX or not isinstance(value, (dict, list)) or not value:
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        items = [
            f"{json.dumps(key, ensure_ascii=False)}: {_laid_out(item, indent + 2)}"
            for key, item in value.items()
        ]
    else:
        items = [_laid_out(item, indent + 2) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(items) + f"\n{' ' * indent}{closing}"


def _size(count: int) -> str:
    return f"{count} B" if count < 1000 else f"{count / 1000:.1f} kB"
