"""The checks of `make dist` notice what is missing from a distribution, and what should not be in it."""

from scripts.dist import IN_SDIST, metadata_problems, sdist_problems, wheel_problems
from tests.docs.pages import ROOT

PACKAGE = [
    file.relative_to(ROOT / "src").as_posix()
    for file in (ROOT / "src" / "toolwright").rglob("*")
    if file.is_file() and "__pycache__" not in file.parts
]


def test_a_wheel_has_every_file_of_the_package_and_nothing_else():
    assert wheel_problems([*PACKAGE, "toolwright-0.1.0.dist-info/METADATA"]) == []
    without = [name for name in PACKAGE if not name.endswith(("py.typed", "schema.sql"))]
    assert wheel_problems([*without, "tests/test_ids.py"]) == [
        "The wheel lacks toolwright/py.typed",
        "The wheel lacks toolwright/stores/postgres/schema.sql",
        "The wheel lacks toolwright/stores/sqlite/schema.sql",
        "The wheel has tests/test_ids.py, which is no file of the package",
    ]


def test_an_sdist_has_nothing_of_this_machine():
    assert sdist_problems(IN_SDIST) == []
    assert sdist_problems([*IN_SDIST[:-1], "agent.db", ".venv/bin/python"]) == [
        f"The sdist lacks {IN_SDIST[-1]}",
        "The sdist has .venv/bin/python, which belongs to this machine",
        "The sdist has agent.db, which belongs to this machine",
    ]


def test_the_metadata_must_be_that_of_the_project():
    wrong = metadata_problems("Metadata-Version: 2.4\nName: toolwright\nVersion: 9.9\nProvides-Extra: cli\n\nNothing")
    assert "The metadata has Version '9.9', not '0.1.0'" in wrong
    assert "The metadata lacks the extra 'all'" in wrong
    assert "The metadata has no long description; it should be the README" in wrong
    assert not [line for line in wrong if "Name" in line]
