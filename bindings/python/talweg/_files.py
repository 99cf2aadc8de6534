"""Files that are written: errors name them, and what can be known of them is known before there is anything to write. And small
ones that are read."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

Path = str | os.PathLike[str]

# Where a file may be changed and nothing beside it, and where a mounted file is: it is written in place.
_FIXED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV, errno.ENAMETOOLONG)


def check(argument: str, path: Path | None) -> None:
    """Raises OSError in one line where no file can be written there, and leaves what is there as it is."""
    if path is None:
        return
    fresh = not os.path.lexists(path)
    if not fresh and not os.path.isfile(path) and not os.path.isdir(path):
        return  # a device or a pipe: opening it may wait, or set something off
    try:
        with open(path, "ab"):
            pass
        if fresh:
            os.remove(path)
    except (OSError, ValueError) as error:  # ValueError: no name of a file, such as "\0"
        raise _refused(argument, path, error) from None


def check_apart(argument: str, path: Path | None, other: str, other_path: Path | None) -> None:
    """Raises OSError in one line where both are one file, of which the second to be written would be all that is left."""
    if path is None or other_path is None or os.path.realpath(path) != os.path.realpath(other_path):
        return
    if os.path.isfile(path) or not os.path.exists(path):
        raise OSError(f"{argument} and {other}: both would be written to {os.fspath(path)}: expected two files")


def write(argument: str, path: Path, text: str) -> None:
    """Raises OSError in one line, which a file's own does not do for what fails after it was opened. A file that is there is replaced
    once the new one is whole, and keeps its owner and permissions; a link to it stays; devices and pipes are written to as they are."""
    try:
        if _replace(path, text):
            return
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise _refused(argument, path, error) from None


def _replace(path: Path, text: str) -> bool:
    """False, with nothing changed, where a file cannot be replaced and can only be written in place."""
    real = os.path.realpath(path)
    known = None
    if os.path.exists(path):
        known = os.stat(path)
        if not stat.S_ISREG(known.st_mode):
            return False
    draft, made = f"{real}.{os.getpid()}.part", False
    try:
        with contextlib.suppress(FileNotFoundError):
            os.remove(draft)  # a stranger's, or an ended process's
        with open(draft, "x", encoding="utf-8") as file:
            made = True
            if known is not None:
                os.fchown(file.fileno(), known.st_uid, known.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(known.st_mode))
            file.write(text)
        os.replace(draft, real)
        made = False
    except OSError as error:
        if error.errno in _FIXED:
            return False
        raise
    finally:
        if made:
            os.remove(draft)
    return True


def read(path: Path, most: int) -> str:
    """Raises OSError, and ValueError for what is no text or no file of at most `most` bytes: a pipe or a device may never end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("expected a regular file")
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"expected at most {most >> 20} MiB")
    return data.decode("utf-8")


def _refused(argument: str, path: Path, error: OSError | ValueError) -> OSError:
    return OSError(f"{argument}: cannot write {os.fspath(path)}: {getattr(error, 'strerror', None) or error}")
