"""What a run must not leave in its files: clear sums, personal vectors, records.

``watched`` notes them while a run trains, as the loop computes them, and ``traces``
looks for their bytes, as float32 and float64, at every offset of every file.
"""

import io
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

from simulate.engine import loop

WINDOW = 8  # consecutive coordinates that are looked for: 32 bytes or more
DIFFERENT = 6  # of them that differ, so that no padding is taken for a vector
RECORDS = 300  # training records that are looked for


@dataclass
class Secrets:
    """Vectors by kind, as the training loop had them."""

    sums: list[np.ndarray] = field(default_factory=list)
    personal: list[np.ndarray] = field(default_factory=list)
    records: list[np.ndarray] = field(default_factory=list)

    def needles(self):
        """Kind and bytes of a window of each vector."""
        for kind in ("sums", "personal", "records"):
            for vector in getattr(self, kind):
                window = window_of(vector)
                if window is not None:
                    yield kind, window.astype("<f4").tobytes()
                    yield kind, window.astype("<f8").tobytes()
                    yield kind, window.astype("<f4").astype("<f8").tobytes()


def window_of(vector):
    """The first window of different, nonzero coordinates; None where there is none."""
    for begin in range(0, len(vector) - WINDOW + 1, WINDOW):
        window = vector[begin : begin + WINDOW]
        if len(set(window.tolist()) - {0.0}) >= DIFFERENT:
            return window
    return None


@contextmanager
def watched():
    """Note every clear sum and every personal vector of the runs in the block."""
    secrets = Secrets()
    sums = loop.group_sums
    updates = loop.client_updates

    def noted_sums(experiment, context):
        group_sums, personal = sums(experiment, context)
        secrets.sums += [
            group_sum.total.detach().numpy().ravel().copy() for group_sum in group_sums
        ]
        note(experiment, personal)
        return group_sums, personal

    def noted_updates(experiment, context):
        sent, personal = updates(experiment, context)
        note(experiment, personal)
        return sent, personal

    def note(experiment, personal):
        secrets.personal += [row.numpy().ravel().copy() for row in personal.values()]
        if not secrets.records:
            rows = experiment.data.train_x[:RECORDS].numpy()
            secrets.records += [
                row.ravel().astype(float) / row.max() for row in rows if row.max()
            ]
            secrets.records += [row.ravel().astype(float) for row in rows]

    with (
        patch.object(loop, "group_sums", noted_sums),
        patch.object(loop, "client_updates", noted_updates),
    ):
        yield secrets


def contents(folder):
    """Each file of a folder with its bytes, and those that its archives unpack to."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            yield path.relative_to(folder).as_posix(), content
            if zipfile.is_zipfile(io.BytesIO(content)):
                with zipfile.ZipFile(io.BytesIO(content)) as archive:
                    for name in archive.namelist():
                        yield path.relative_to(folder).as_posix(), archive.read(name)


def traces(folder, secrets):
    """Names of files that hold a secret, each with the kinds that it holds."""
    needles = list(secrets.needles())
    holding = {}
    for name, content in contents(folder):
        kinds = {kind for kind, needle in needles if needle in content}
        if kinds:
            holding[name] = holding.get(name, set()) | kinds
    return holding
