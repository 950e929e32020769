"""Builds the distribution and checks it as a user would meet it: contents, metadata, and the quickstart from the wheel.

Run it with `make dist`, which installs what it needs. It leaves the wheel and the sdist in dist/.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
IN_SDIST = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "src/toolwright/__init__.py")
NOT_SHIPPED = re.compile(r"(^|/)(\.venv|\.git|\.bench|build|dist|__pycache__|[^/]+\.(db|key|pyc))(/|$)")


def main() -> None:
    """Build, check, install, run; end with 1 and the reasons if anything is wrong."""
    shutil.rmtree(DIST, ignore_errors=True)
    say("Building the sdist, and the wheel from it")
    run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    (wheel,) = DIST.glob("*.whl")
    (sdist,) = DIST.glob("*.tar.gz")
    say("Checking contents and metadata")
    run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        wrong = wheel_problems(archive.namelist()) + metadata_problems(archive.read(metadata).decode())
    with tarfile.open(sdist) as tar:
        wrong += sdist_problems(name.partition("/")[2] for name in tar.getnames())
    if wrong:
        sys.exit("\n".join(wrong))
    say("Installing the wheel alone into an empty environment, and running the quickstart there")
    try_wheel(wheel)
    for file in (wheel, sdist):
        say(f"{file.relative_to(ROOT)}: {file.stat().st_size // 1024} KiB")


def wheel_problems(names: Iterable[str]) -> list[str]:
    """What is missing from a wheel, or should not be in it: it has every file of the package, and nothing else."""
    package = ROOT / "src"
    files = (file for file in (package / "toolwright").rglob("*") if file.is_file())
    expected = {file.relative_to(package).as_posix() for file in files if "__pycache__" not in file.parts}
    shipped = {name for name in names if not name.endswith("/") and ".dist-info/" not in name}
    return [f"The wheel lacks {name}" for name in sorted(expected - shipped)] + [
        f"The wheel has {name}, which is no file of the package" for name in sorted(shipped - expected)
    ]


def sdist_problems(names: Iterable[str]) -> list[str]:
    """What is missing from an sdist, or should not be in it. `names` are below its directory."""
    shipped = set(names)
    return [f"The sdist lacks {name}" for name in IN_SDIST if name not in shipped] + [
        f"The sdist has {name}, which belongs to this machine" for name in sorted(shipped) if NOT_SHIPPED.search(name)
    ]


def metadata_problems(text: str) -> list[str]:
    """Where the metadata of a wheel differs from pyproject.toml, or lacks what an index shows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = Parser().parsestr(text)
    expected = {
        "Name": project["name"],
        "Version": project["version"],
        "Requires-Python": project["requires-python"],
        "License-Expression": project["license"],
        "Summary": project["description"],
    }
    wrong = [
        f"The metadata has {name} {found[name]!r}, not {value!r}"
        for name, value in expected.items()
        if found[name] != value
    ]
    extras = set(found.get_all("Provides-Extra", []))
    wrong += [
        f"The metadata lacks the extra {name!r}" for name in project["optional-dependencies"] if name not in extras
    ]
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/toolwright/__init__.py").read_text(), re.M)
    if version is None or version.group(1) != project["version"]:
        wrong.append(f"toolwright.__version__ is not {project['version']!r}, the version in pyproject.toml")
    if not str(found.get_payload()).startswith("# toolwright"):
        wrong.append("The metadata has no long description; it should be the README")
    return wrong


def try_wheel(wheel: Path) -> None:
    """Install a wheel with nothing but its dependencies, run the quickstart of the README, and compare its output."""
    readme = (ROOT / "README.md").read_text()
    quickstart, shown = re.findall(r"^```python\n(.*?)^```\n+^```text\n(.*?)^```$", readme, re.M | re.S)[0]
    with tempfile.TemporaryDirectory(prefix="toolwright-wheel-") as folder:
        place = Path(folder)
        venv.create(place / "env", with_pip=True)
        python = place / "env" / "bin" / "python"
        run(str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", str(wheel))
        (place / "quickstart.py").write_text(quickstart)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        printed = run(str(python), "-I", "quickstart.py", cwd=place, env=clean)
        pattern = ".*".join(re.escape(part) for part in shown.strip().split("…"))
        if not re.fullmatch(pattern, printed.strip()):
            sys.exit(f"The quickstart printed something else than the README shows:\n{printed}")
        command = [str(python.with_name("toolwright")), "--version"]
        told = subprocess.run(command, cwd=place, env=clean, capture_output=True, text=True)
        if told.returncode != 2 or "toolwright[cli]" not in told.stderr:
            sys.exit(f"Without the extra 'cli', the command should say how to install it; it said:\n{told.stderr}")


def run(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command, and return what it printed; if it fails, end with its output."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
