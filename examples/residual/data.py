"""Writes ``signals.npz``: sine waves of two frequencies with noise, and who recorded them."""

from pathlib import Path

import numpy as np

CLIENTS, STRICT, SIGNALS = 20, 12, 12


def write(folder: Path = Path()) -> None:
    """Write the arrays into a folder."""
    generator = np.random.default_rng(0)
    client = np.repeat(np.arange(CLIENTS), SIGNALS)
    y = np.arange(len(client)) % 2
    time, phase = np.linspace(0, 1, 16), generator.uniform(0, 0.3, (len(y), 1))
    x = np.sin(2 * np.pi * ((1 + 2 * y[:, None]) * time + phase))
    x = (x + generator.normal(0, 0.3, x.shape)).astype(np.float32)[:, None]
    group = np.where(client < STRICT, "strict", "loose")
    np.savez(folder / "signals.npz", x=x, y=y, client=client, group=group)


if __name__ == "__main__":
    write()
