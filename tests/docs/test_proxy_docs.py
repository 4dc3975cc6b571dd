"""The proxies' configurations in docs/operate/proxy.md are ones that the proxies accept."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import trustme

from support import programs

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "proxy.md"
FRAMES = {
    "nginx": "pid {directory}/pid; events {{ }} http {{ access_log off;\n{body}\n}}",
    "haproxy": "{body}",
}
CHECKS = {"nginx": ["-t", "-q", "-e", "stderr", "-c"], "haproxy": ["-c", "-f"]}


@pytest.mark.parametrize("name", programs.here("nginx", "haproxy"))
def test_a_proxy_accepts_the_configuration_of_the_page(name: str, tmp_path: Path) -> None:
    found = re.search(rf"^```{name}\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert found
    issued = trustme.CA().issue_cert("hooks.example.com")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "hooks.example.com.pem")
    issued.private_key_pem.write_to_path(tmp_path / "hooks.example.com.key")
    body = found[1].replace("/etc/ssl", str(tmp_path))
    # Checking binds: nginx a port that only root may have.
    body = body.replace("listen 443", f"listen unix:{tmp_path}/socket")
    (tmp_path / "conf").write_text(FRAMES[name].format(directory=tmp_path, body=body))
    program = programs.program(name)
    assert program
    done = subprocess.run(
        [program, *CHECKS[name], str(tmp_path / "conf")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
