"""Files of a local folder that survive a power cut: content on the disk first, then the name, then the folder.

Whoever sees a file sees it whole and synced. Its name may reach the disk a moment after others see it: until the
put returns, nobody may take what it says for durable, as with any put whose reply is still to come.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class SyncedFolder:
    """Writes files under `root`; safe between threads and processes. Raises OSError."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: set[Path] = set()
        """Folders whose own names are on the disk."""

    def create(self, key: str, body: bytes) -> None:
        """Write a new file. Raises FileExistsError."""
        self._write(key, body, os.link)

    def overwrite(self, key: str, body: bytes) -> None:
        """Write a file in place of another or none."""
        self._write(key, body, os.replace)

    def _write(self, key: str, body: bytes, publish: Callable[[Path, Path], None]) -> None:
        path = self._root / key
        self._make(path.parent)
        staged = path.with_name(f"{path.name}#{secrets.randbelow(10**12)}")  # obstore's form: its listings skip it
        try:
            with staged.open("xb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            publish(staged, path)
        finally:
            with suppress(FileNotFoundError):
                staged.unlink()
        _sync(path.parent)

    def _make(self, folder: Path) -> None:
        """The folder, with all names on the way to it on the disk, whoever made them."""
        if folder in self._known and folder.is_dir():
            return
        if folder != self._root:
            self._make(folder.parent)
        folder.mkdir(parents=True, exist_ok=True)
        _sync(folder.parent)
        self._known.add(folder)


def _sync(folder: Path) -> None:
    """Put the folder's names on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
