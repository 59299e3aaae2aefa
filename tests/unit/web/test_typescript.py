"""The web client's own tests, in TypeScript, and its types."""

import os
import shutil
import subprocess

import pytest

from services.gateway import web_client

SOURCE = web_client.DIRECTORY.parent


@pytest.mark.parametrize("script", ["check", "test"])
def test_the_typescript_of_the_web_client(script: str) -> None:
    npm = shutil.which("npm")
    if npm is None or not (SOURCE / "node_modules").is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("npm, or what it installs, is not there (make web)")
    ran = subprocess.run([npm, "run", "--silent", script], check=False, cwd=SOURCE, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
