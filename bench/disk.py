"""Where durable contestants keep their files: on a disk, in a folder that is gone afterwards.

Needs only the standard library, so that it also runs inside a peer's environment.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Beside the repository: the system's own place for temporary files may be memory, where a sync costs nothing.
FOLDER = Path(__file__).resolve().parent.parent / ".bench" / "files"


@contextlib.contextmanager
def new_file() -> Iterator[Path]:
    """The path of a file that does not exist yet."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        yield Path(folder) / "store.db"
