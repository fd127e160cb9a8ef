"""Numbers of Robust-HDP (S. Malekmohammadi, Y. Yu, Y. Cao, ICML 2024), as printed."""

from __future__ import annotations

DISTRIBUTIONS = tuple(f"Dist{number}" for number in range(1, 10))
NOISE = {
    "WeiAvg": (1.02, 1.89, 0.92, 3.22, 4.58, 28.29, 9.85, 48.15, 34.91),
    "DPFedAvg": (1.27, 16.94, 16.28, 26.87, 25.64, 70.71, 18.50, 85.70, 43.20),
    "minimum epsilon": (4.68, 103.91, 103.91, 127.18, 103.91, 1868.45, 74.41, 241.37, 87.15),
    "Robust-HDP": (0.27, 0.47, 0.07, 0.64, 0.39, 7.60, 2.25, 13.81, 5.93),
}
"""Table 3: variance of the mean update per coordinate over the squared learning rate; the last row
is the oracle's, from which Robust-HDP differs by 1% at most."""
MNIST = {
    "WeiAvg": (90.08, 88.29, 89.74, 88.20, 84.94, 81.40, 84.43, 78.71, 81.38),
    "PFA": (88.24, 87.93, 88.35, 88.32, 85.65, 82.16, 83.71, 80.25, 78.51),
    "DPFedAvg": (84.24, 82.84, 83.50, 80.43, 83.02, 75.69, 85.71, 70.58, 80.49),
    "minimum epsilon": (77.80, 74.86, 74.86, 71.75, 68.42, 34.32, 77.62, 56.10, 68.44),
    "Robust-HDP": (89.83, 90.71, 89.83, 89.38, 87.52, 84.60, 84.03, 81.19, 81.52),
}
"""Table 12."""
FMNIST = {
    "WeiAvg": (77.65, 78.30, 75.92, 77.10, 72.38, 64.15, 66.80, 66.86, 64.79),
    "PFA": (75.03, 74.85, 72.90, 77.10, 72.44, 71.08, 66.30, 67.89, 64.69),
    "DPFedAvg": (74.12, 71.68, 71.97, 68.10, 70.20, 62.46, 64.15, 65.87, 65.50),
    "minimum epsilon": (73.15, 64.26, 64.26, 62.60, 64.35, 28.66, 65.13, 58.44, 66.36),
    "Robust-HDP": (75.13, 76.25, 75.04, 76.19, 73.80, 71.30, 66.85, 68.32, 66.96),
}
"""Table 13."""
RATES = {
    "mnist": {
        "WeiAvg": (1e-2, 5e-3, 1e-2, 5e-3, 5e-3, 1e-3, 1e-3, 1e-3, 1e-3),
        "PFA": (5e-3, 5e-3, 5e-3, 5e-3, 5e-3, 1e-3, 1e-3, 1e-3, 5e-4),
        "DPFedAvg": (5e-3, 1e-3, 1e-3, 1e-3, 1e-3, 5e-4, 1e-3, 1e-3, 1e-3),
        "minimum epsilon": (5e-4, 5e-4, 5e-4, 5e-4, 1e-3, 1e-4, 1e-3, 5e-4, 1e-3),
        "Robust-HDP": (1e-2, 1e-2, 1e-2, 1e-2, 5e-3, 2e-3, 2e-3, 2e-3, 2e-3),
    },
    "fashion-mnist": {
        "WeiAvg": (5e-3, 5e-3, 5e-3, 5e-3, 2e-3, 5e-4, 5e-4, 5e-4, 5e-4),
        "PFA": (2e-3, 2e-3, 5e-3, 5e-3, 5e-3, 5e-3, 2e-3, 1e-3, 1e-3),
        "DPFedAvg": (2e-3, 1e-3, 1e-3, 1e-3, 1e-3, 5e-4, 5e-4, 5e-4, 5e-4),
        "minimum epsilon": (1e-3, 5e-4, 5e-4, 5e-4, 5e-4, 1e-4, 5e-4, 5e-4, 5e-4),
        "Robust-HDP": (5e-3, 5e-3, 5e-3, 5e-3, 5e-3, 1e-3, 1e-3, 1e-3, 1e-3),
    },
}
"""Tables 8 and 9: learning rates, by data set and method."""
SKEWED = {
    "WeiAvg": (81.14, 81.21, 84.44, 71.64, 81.45, 72.27, 80.55, 71.28, 72.07),
    "PFA": (81.29, 77.40, 80.65, 74.45, 81.89, 64.48, 81.40, 73.39, 72.97),
    "DPFedAvg": (82.61, 74.32, 83.12, 70.8, 81.34, 66.51, 76.10, 65.16, 73.03),
    "Robust-HDP": (84.84, 82.78, 80.78, 78.91, 81.66, 72.30, 79.32, 70.68, 73.82),
}
"""Table 4: MNIST, at most 8 classes per client, 60 clients, batches of 128."""
CLIENTS = {
    "WeiAvg": ((81.60, 0.58), (75.20, 0.67), (63.12, 0.78)),
    "PFA": ((82.16, 0.99), (73.15, 1.02), (66.0, 0.98)),
    "DPFedAvg": ((74.02, 1.54), (62.98, 1.85), (58.49, 1.67)),
    "Robust-HDP": ((85.13, 0.68), (76.85, 0.75), (72.77, 0.78)),
}
"""Table 17: MNIST, Dist6, 20, 40 and 60 clients; mean and deviation over three runs."""
