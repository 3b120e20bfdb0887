"""Files that are there whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, also if the machine stops."""
    check_writable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: Path, suffixes: tuple[str, ...] = ()) -> None:
    """ValueError if no such file could be written, so that it is said before any work is done for it."""
    if not path.name or path.is_dir():
        raise ValueError(f"cannot write {str(path)!r}: that is a folder, give a file")
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"give a file that ends in {' or '.join(suffixes)}, found {path}")
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """ValueError if nothing could be written into this folder, which need not be there yet."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write into {folder}: {there} is {'not writable' if there.is_dir() else 'not a folder'}")
