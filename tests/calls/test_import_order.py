"""The modules of calls/ can be read one after the other: none imports a module that imports it."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

ROOM = "toolwright.calls"


def imports_of(room: str) -> dict[str, set[str]]:
    """The imports among the modules of a room; those for types count as any."""
    graph = grimp.build_graph("toolwright", exclude_type_checking_imports=False, cache_dir=None)
    modules = {module for module in graph.modules if module.startswith(f"{room}.")}
    return {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}


def test_no_module_of_a_call_imports_one_that_imports_it():
    imports = imports_of(ROOM)
    assert len(imports) > 50
    try:
        order = list(TopologicalSorter(imports).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1]))
    assert order.index(f"{ROOM}.active_call") < order.index(f"{ROOM}.conclude") < order.index(f"{ROOM}.batch")
