"""An image holds `shared/` and one service: what that imports must be pinned for it."""

import ast
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from shared.contracts.subject import SERVICES

ROOT = Path(__file__).parents[2]
# The bundled ones, servers in images of their own.
MODELS = ("embedder", "demo_model")
DISTRIBUTIONS = metadata.packages_distributions()


def imported(folder: Path) -> set[str]:
    """The top-level names of third-party modules that the code below imports."""
    names = set()
    for path in (path for path in folder.rglob("*.py") if "node_modules" not in path.parts):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names.add(node.module.split(".")[0])
    return {name for name in names if name not in sys.stdlib_module_names and name not in ("shared", "services", "local")}


def pinned(service: str) -> set[str]:
    lines = (ROOT / "requirements" / f"{service}.txt").read_text().splitlines()
    return {re.sub(r"[-_.]+", "-", line.split("==")[0].split("[")[0]).lower() for line in lines if "==" in line}


IMAGES = {**{service: ROOT / "services" / service for service in SERVICES}, **{name: ROOT / "local" / name for name in MODELS}}


@pytest.mark.parametrize("service", IMAGES)
def test_everything_a_service_imports_is_pinned_for_it(service: str) -> None:
    here = pinned(service) | pinned("shared")
    for name in imported(ROOT / "shared") | imported(IMAGES[service]):
        distributions = {re.sub(r"[-_.]+", "-", distribution).lower() for distribution in DISTRIBUTIONS[name]}
        assert distributions & here, f"{service} imports {name}, which requirements/{service}.txt does not pin"


def test_no_pin_names_an_address() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        assert not re.search(r"://|--(extra-)?index|--find-links|@ ", path.read_text()), path


def test_the_web_clients_lock_file_names_no_address_of_packages() -> None:
    assert "resolved" not in (ROOT / "services" / "gateway" / "web" / "package-lock.json").read_text()
