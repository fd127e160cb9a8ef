"""Output files: replaced as a whole, through links, and never in the place of a device."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from privplan.files import write_bytes


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_bytes(b"before")
    write_bytes(target, b"after")
    assert target.read_bytes() == b"after"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_the_file_that_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "folder" / "plan.json", tmp_path / "link"
    target.parent.mkdir()
    target.write_bytes(b"before")
    link.symlink_to(target)
    write_bytes(link, b"after")
    assert link.is_symlink()
    assert target.read_bytes() == b"after"


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_bytes(pipe, b"content")
    reader.join(10)
    assert read == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
