"""The page of the demo: it stays, prints a link that works once, and has an approval that waits."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx

import toolwright

ROOT = Path(__file__).parents[2]


def test_the_demo_with_its_page_prints_a_link_and_has_an_approval_that_waits(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(toolwright.__file__).parents[1]), "TMPDIR": str(tmp_path)}
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--page"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        try:
            link = next(found.group() for line in demo.stdout if (found := re.search(r"http://\S+", line)))
            with httpx.Client(timeout=60) as browser:
                logged_in = browser.get(link)
                again = httpx.get(link, timeout=60)
                page = browser.get(link.partition("/login")[0])
                waiting = browser.get(httpx.URL(link).join("/v1/approvals")).json()["items"]
        finally:
            demo.send_signal(signal.SIGTERM)
            demo.communicate(timeout=60)

    assert logged_in.status_code == 303
    assert again.status_code == 401
    assert "<title>toolwright</title>" in page.text
    assert "refund" in [each["approval"]["tool"] for each in waiting if each["approval"]]
    assert list(tmp_path.iterdir()) == []
