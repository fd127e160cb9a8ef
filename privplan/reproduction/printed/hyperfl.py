"""Numbers of HyperFL (Guo et al., AAAI 2025), as printed."""

from __future__ import annotations

ACCURACY = {
    "Local-only": (85.93, 87.01, 65.47, 66.11),
    "FedAvg": (85.67, 88.11, 70.02, 76.24),
    "pFedHN": (87.64, 89.80, 70.18, 80.07),
    "DP-FedAvg": (59.88, 68.29, 29.12, 32.03),
    "CENTAUR": (83.07, 79.77, 50.85, 51.86),
    "PPSGD": (84.47, 82.94, 52.17, 53.92),
    "HyperFL": (88.28, 90.41, 73.03, 78.73),
}
"""Table 1 without EMNIST and CINIC-10."""
PSNR = {
    "FedAvg": (32.64, 16.16),
    "pFedHN": (31.24, 16.02),
    "pFedHN-PC": (28.38, 15.80),
    "DP-FedAvg": (7.74, 7.90),
    "CENTAUR": (9.52, 9.80),
    "PPSGD": (9.73, 9.70),
    "HyperFL": (7.85, 8.35),
}
"""Table 3: EMNIST and CIFAR-10."""
SECONDS = {"FedAvg": 23, "DP-FedAvg": 194, "PPSGD": 223, "CENTAUR": 210, "HyperFL": 37}
"""Table 4: EMNIST, 20 clients, on the paper's machine."""
