"""The deployed project's task: a linear model on scikit-learn's digits, 4 clients."""

from pathlib import Path

import numpy as np
import sklearn

FILE = Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"


def digits(part):
    """Pixels in [0, 1] and labels of every fifth image from ``part`` on.

    Parts 0 to 3 are the clients'; part 4 is the test set.
    """
    table = np.loadtxt(FILE, delimiter=",")[part::5]
    return table[:, :-1] / 16, table[:, -1].astype(int)


def initial_model():
    """A model that knows nothing."""
    return {"weight": np.zeros((64, 10), "f4"), "bias": np.zeros(10, "f4")}


def load_data(client):
    """A fifth of the images."""
    return digits(client)


def train(model, data):
    """Twenty steps of gradient descent on the cross entropy."""
    x, y = data
    weight = model["weight"]
    bias = model["bias"]
    for _ in range(20):
        scores = np.exp(x @ weight + bias - (x @ weight + bias).max(1, keepdims=True))
        error = scores / scores.sum(1, keepdims=True) - np.eye(10)[y]
        weight = weight - 0.5 * x.T @ error / len(y)
        bias = bias - 0.5 * error.mean(0)
    return {"weight": weight.astype("f4"), "bias": bias.astype("f4")}
