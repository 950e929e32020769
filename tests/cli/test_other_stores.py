"""The commands work on every store that has a scheme, and know none of them by name."""

import ast
from pathlib import Path

import pytest

import toolwright.cli
from tests.cli.conftest import Run
from tests.stores.shelf import ShelfScheme
from toolwright.stores import opening as registry
from toolwright.stores import register_scheme

DB = ("--db", "shelf://one")


@pytest.fixture(autouse=True)
def shelves(monkeypatch: pytest.MonkeyPatch) -> ShelfScheme:
    monkeypatch.setattr(registry, "schemes", dict(registry.schemes))
    scheme = ShelfScheme()
    register_scheme("shelf", scheme)
    return scheme


@pytest.mark.promise("EFF-17")
def test_a_store_of_another_package_has_the_commands_for_nothing(run: Run, project: Path):
    before = sorted(project.iterdir())
    assert run("call", "add", "a=1", "--tools", "kit.py", *DB).code == 0
    (batch,) = run("batches", *DB, "--json").json
    assert (batch["calls"], batch["statuses"]) == (1, {"success": 1})
    (call,) = run("batches", "show", batch["batch"], *DB, "--json").json["calls"]
    assert (call["tool"], call["status"]) == ("add", "success")
    assert run("db", "stats", *DB, "--json").json["calls"] == {"success": 1}
    assert run("db", "check", *DB).out == "shelf://one is sound.\n"
    assert run("db", "migrate", *DB).out == "shelf://one is up to date, at version 1.\n"
    assert run("approvals", *DB, "--json").json == []
    assert run("db", "prune", "--before", "0d", "--yes", *DB, "--json").json["calls"] == 1
    assert run("batches", *DB, "--json").json == []
    assert [path for path in sorted(project.iterdir()) if path not in before and path.name != "__pycache__"] == []


def test_a_project_names_its_store_by_a_url(run: Run, project: Path):
    (project / "pyproject.toml").write_text('[tool.toolwright]\ndb = "shelf://two"\ntools = ["kit.py"]\n')
    assert run("call", "add", "a=1").code == 0
    assert run("db", "stats", "--json").json["calls"] == {"success": 1}


def test_a_store_that_is_not_there_is_an_error(run: Run):
    ended = run("db", "stats", "--db", "shelf://none")
    assert (ended.code, ended.out) == (2, "")
    assert "There is no store 'shelf://none'; check the path" in ended.err


def test_a_scheme_that_is_not_known_is_an_error(run: Run):
    ended = run("db", "stats", "--db", "nowhere://one")
    assert ended.code == 2
    assert "has the scheme 'nowhere', which is not known" in ended.err


def test_no_command_knows_the_store_in_a_file():
    for file in Path(toolwright.cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name == "apsw" or name.startswith("toolwright.stores.sqlite")], file
