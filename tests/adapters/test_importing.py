"""Importing an adapter: it says which library is missing, and imports little beside its framework."""

import json
import subprocess
import sys

import pytest

ADAPTERS = [("pydantic_ai", "pydantic_ai", "pydantic-ai"), ("openai_agents", "agents", "openai-agents")]
TEMPORAL = ("temporal", "temporalio", "temporal")


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("adapter", "framework", "extra"), [*ADAPTERS, TEMPORAL])
def test_a_missing_framework_is_told_with_the_way_to_install_it(adapter: str, framework: str, extra: str) -> None:
    told = run(
        "import importlib.machinery as machinery, sys\n"
        "class Absent(machinery.PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        f"        return None if name.partition('.')[0] == {framework!r} else super().find_spec(name, path, target)\n"
        "sys.meta_path = [Absent if each is machinery.PathFinder else each for each in sys.meta_path]\n"
        "from toolwright.errors import MissingRequirement\n"
        "try:\n"
        f"    import toolwright.adapters.{adapter}\n"
        "except MissingRequirement as error:\n"
        "    print(error)\n"
    )
    assert f"pip install 'toolwright[{extra}]'" in told
    assert framework in told


@pytest.mark.parametrize(("adapter", "framework", "extra"), ADAPTERS)
def test_an_adapter_imports_nothing_heavy_beside_its_framework(adapter: str, framework: str, extra: str) -> None:
    new = json.loads(
        run(
            f"import sys, json, {framework}\n"
            "before = set(sys.modules)\n"
            f"import toolwright.adapters.{adapter}\n"
            "print(json.dumps(sorted(set(sys.modules) - before)))"
        )
    )
    theirs = [name for name in new if name.partition(".")[0] == framework]
    assert theirs == []
    ours = [name for name in new if name.startswith("toolwright.")]
    assert [
        name for name in ours if name.split(".")[1] in ("session", "runtime", "stores", "turns", "background")
    ] == []
    assert len(ours) < 30
