"""Files that are there whole or not at all, read with limits, and folders that only one run writes to."""

import contextlib
import fcntl
import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

LARGEST_TEXT = 4 * 2**30  # bytes of a text file, unpacked
LOCK = ".lock"
BUNDLED = Path(__file__).parent / "models"  # folders of the models that come with the package, by their names


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
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error} (what was there before is still there)") from error
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


def read_bytes(path: Path, most: int, what: str = "file") -> bytes:
    """The content of an ordinary file of at most `most` bytes, unpacked if its name ends in .gz; ValueError otherwise.

    A pipe or device is refused, as reading it may never end; a small file that unpacks to something vast, too.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(f"{path} is not an ordinary file")
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
    """Delete the .part files of runs that were killed while writing into a folder; only one that holds its lock may do so."""
    for path in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for as long as this lasts; ValueError if another process holds it. A killed process lets it go."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(f"another run is writing into {folder}: wait for it, or choose another --out") from error
        remove_leftovers(folder)
        yield
