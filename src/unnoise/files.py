"""Atomic writes, reads with a size limit, and locked folders."""

import contextlib
import gzip
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

LARGEST_TEXT = 4 * 2**30  # bytes of a text file after decompression
LOCK = ".lock"
BUNDLED = Path(__file__).parent / "models"  # folders of the bundled models, by name


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that after a crash it has either its old or its new content."""
    check_writable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error} (the previous content is unchanged)") from error
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: Path, suffixes: tuple[str, ...] = ()) -> None:
    """Raise ValueError if a file cannot be written, before any work is done for it."""
    if not path.name or path.is_dir():
        raise ValueError(f"cannot write {str(path)!r}: it is a folder, pass the path of a file")
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"expected a file that ends in {' or '.join(suffixes)}, found {path}")
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Raise ValueError if a folder, which may not exist yet, cannot be written to."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        problem = "not writable" if existing.is_dir() else "not a folder"
        raise ValueError(f"cannot write to {folder}: {existing} is {problem}")


def read_bytes(path: Path, most: int, what: str = "file") -> bytes:
    """Return the content of a regular file, decompressed if its name ends in .gz.

    Raise ValueError if it exceeds `most` bytes, or if the path is a pipe or device, because reading those may never end.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(f"{path} is not a regular file")
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            content = file.read(most + 1)
    except FileNotFoundError:
        raise
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    if len(content) > most:
        raise ValueError(f"{path} is larger than a {what} may be ({most:,} bytes)")
    return content


def remove_leftovers(folder: Path) -> None:
    """Delete the .part files that killed runs left in a folder; the caller must hold its lock."""
    for path in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder inside the `with` block, or raise ValueError if another process holds the lock.

    The operating system releases the lock when the process ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "w", encoding="utf-8") as file:
        try:
            _lock(file)
        except OSError as error:
            raise ValueError(f"another run is writing to {folder}: wait for it, or choose another --out") from error
        remove_leftovers(folder)
        yield


def _lock(file: IO[str]) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
