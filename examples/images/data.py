"""Writes ``faces/CLIENT/CLASS/*.png`` and ``groups.csv``: bright and dark squares on noise."""

from pathlib import Path

import numpy as np
from PIL import Image

CLIENTS, STRICT, IMAGES = 20, 12, 10


def write(folder: Path = Path()) -> None:
    """Write the images and the groups into a folder."""
    generator, lines = np.random.default_rng(0), ["client,group"]
    for client in range(CLIENTS):
        lines.append(f"c{client:02d},{'strict' if client < STRICT else 'loose'}")
        for number in range(IMAGES):
            kind = number % 2
            pixels = generator.integers(0, 120, (8, 8))
            pixels[2:6, 2:6] += 100 * kind
            path = (
                folder
                / "faces"
                / f"c{client:02d}"
                / ("dark", "bright")[kind]
                / f"{number}.png"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
    (folder / "groups.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write()
