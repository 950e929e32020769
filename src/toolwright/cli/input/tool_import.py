"""Importing the code of tools. Owns modules by name and by file, and saying why one does not import."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import toolwright
from toolwright.cli.exits import BadInput

Result = TypeVar("Result")
_A_FILE = {"--tools": "tools.py", "--app": "agent.py:app"}


def import_file(file: Path, *, subject: str) -> ModuleType:
    """Import a Python file. One inside a package is imported as part of it, so that relative imports work.

    Errors begin with the subject, such as "The tools 'kit.py'".

    Raises:
        BadInput: there is no such file, its name is taken, or its code fails.
    """
    if not file.is_file():
        raise BadInput(f"{subject} cannot be found: no file {str(file)!r}; check the path")
    file = file.resolve()
    root, name = file.parent, file.stem
    while (root / "__init__.py").is_file():
        root, name = root.parent, f"{root.name}.{name}"
    name = name.removesuffix(".__init__")
    _prefer(root)
    loaded = sys.modules.get(name)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(file):
            return loaded
        raise BadInput(f"The file {str(file)!r} would be the module {name!r}, and another has that name; rename it")
    if "." in name:
        return _run(lambda: importlib.import_module(name), subject)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Under its name while it runs and after: dataclasses and pickle look there.
    sys.modules[name] = module
    load = spec.loader.exec_module
    try:
        _run(lambda: load(module), subject)
    except BadInput:
        del sys.modules[name]
        raise
    return module


def import_name(name: str, *, directory: Path, subject: str, option: str) -> ModuleType:
    """Import a module by its dotted name, from the environment or from this directory.

    Raises:
        BadInput: there is no such module, or its code fails.
    """
    _prefer(directory)
    return _run(lambda: importlib.import_module(name), subject, name, option)


def _prefer(directory: Path) -> None:
    """Let modules of this directory be imported, here and in the child processes of isolated tools."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _run(load: Callable[[], Result], subject: str, name: str = "", option: str = "") -> Result:
    try:
        # The output of a module while it is imported is not part of the command's output.
        with redirect_stdout(sys.stderr):
            return load()
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing and (name == missing or name.startswith(f"{missing}.")):
            raise BadInput(
                f"{subject} cannot be found: no module {missing!r}; "
                f"install it, run from its directory, or give the path of a file, as in {option} {_A_FILE[option]}"
            ) from None
        raise BadInput(_explain(subject, error, f"install {missing!r} where toolwright is installed")) from error
    except (Exception, SystemExit) as error:  # a user's code, and it may end in any way
        raise BadInput(_explain(subject, error, "fix that and run it again")) from error


def _explain(subject: str, error: BaseException, remedy: str) -> str:
    told = error.msg if isinstance(error, SyntaxError) else error  # its own text ends with the place
    said = " ".join(f"{type(error).__name__}: {told}".split())
    return f"{subject} could not be loaded: {said}{_place(error)}; {remedy}"


def _place(error: BaseException) -> str:
    """The line of the user's code where it went wrong, if there is one."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({Path(error.filename).name}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(toolwright.__file__).parent)  # a definition may be refused deep in it
    for frame in reversed(frames):
        if not frame.filename.startswith((ours, "<frozen importlib")) and "importlib" not in Path(frame.filename).parts:
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""
