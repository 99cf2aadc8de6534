"""What record() writes: an old file or a new one, never a part."""

import contextlib
import os
import resource
import stat

import pytest

from talweg import _files


@contextlib.contextmanager
def files_of_at_most(size):
    """As on a disk that is full then."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_file_is_replaced_when_the_new_one_is_whole(tmp_path):
    old, link, fresh = tmp_path / "old", tmp_path / "link", tmp_path / "fresh"
    old.write_text("as it was")
    old.chmod(0o640)
    link.symlink_to(old)
    for path in (old, link, fresh):
        with files_of_at_most(1000), pytest.raises(OSError, match=f"^job: cannot write {path}: File too large$"):
            _files.write("job", path, "x" * 100_000)
    assert old.read_text() == "as it was"
    assert sorted(tmp_path.iterdir()) == [link, old]
    draft = tmp_path / f"old.{os.getpid()}.part"
    precious = tmp_path / "precious"
    precious.write_text("kept")
    draft.symlink_to(precious)  # whoever can guess its name has nothing from it
    _files.write("job", link, "anew")
    assert link.is_symlink() and not old.is_symlink() and old.read_text() == "anew"
    assert stat.S_IMODE(old.stat().st_mode) == 0o640 and precious.read_text() == "kept"
    _files.write("job", fresh, "anew")
    assert fresh.read_text() == "anew" and sorted(tmp_path.iterdir()) == [fresh, link, old, precious]


def test_what_cannot_be_replaced_is_written_in_place(tmp_path):
    pipe, longest = tmp_path / "pipe", tmp_path / ("a" * 255)  # of the latter no draft can be beside it
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _files.write("job", pipe, "text")
        assert os.read(reader, 100) == b"text" and stat.S_ISFIFO(pipe.stat().st_mode)
    finally:
        os.close(reader)
    longest.write_text("as it was")
    _files.write("job", longest, "anew")
    assert longest.read_text() == "anew" and sorted(tmp_path.iterdir()) == [longest, pipe]
