"""House rules that a machine can keep."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}
FOLDERS = ("shared", "services", "local")


def sources() -> list[Path]:
    return [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts]


def test_no_module_is_named_after_nothing() -> None:
    assert [path for path in sources() if path.stem in BANNED_NAMES] == []


def test_only_settings_and_mains_read_the_environment() -> None:
    readers = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("environ", "getenv")
                and isinstance(node.value, ast.Name)
                and node.value.id == "os"
            ):
                readers.add(path.relative_to(ROOT).as_posix())
    # Variables name the files of secrets, the providers' file names variables; the local stack hands its environment on to what it starts.
    assert readers <= {"shared/secret_files.py", "services/agent/providers.py", "local/backup.py", "local/settings.py"}, readers


def test_wait_for_is_not_used() -> None:
    # asyncio.timeout composes with cancellation; wait_for lost cancels until 3.12 and creates a task.
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Attribute) and node.attr == "wait_for"), f"{path}:{node.lineno}"
