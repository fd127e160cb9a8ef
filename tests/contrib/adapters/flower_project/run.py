"""Flower on digits: flwr's server, strategy, client mod and clients, on threads.

``python run.py PLAN RUN CLIENTS ROUNDS STRATEGY``. Only the workers are replaced:
flwr's simulation starts Ray, which takes longer than the run. Prints lines of JSON.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import threads  # noqa: F401
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp, strategy
from flwr.simulation import run_simulation

from privplan.contrib.adapters.flower import GuardedStrategy, clipping_mod
from privplan.guard import Guard

PLAN, RUN, CLIENTS, ROUNDS, STRATEGY = sys.argv[1:6]


def digits():
    """Pixels in [0, 1] and labels of scikit-learn's digits."""
    import sklearn

    file = Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",")
    return table[:, :-1] / 16, table[:, -1].astype(int)


X, Y = digits()
TEST = np.arange(len(Y)) % 5 == 0
TRAIN = np.flatnonzero(~TEST)


def train(weights, bias, x, y):
    """Ten steps of gradient descent on the cross entropy of a linear model."""
    for _ in range(10):
        scores = x @ weights + bias
        scores = np.exp(scores - scores.max(1, keepdims=True))
        error = scores / scores.sum(1, keepdims=True) - np.eye(10)[y]
        weights = weights - 0.5 * x.T @ error / len(y)
        bias = bias - 0.5 * error.mean(0)
    return weights, bias


app = ClientApp(mods=[clipping_mod])


@app.train()
def client_train(message, context):
    number = int(context.node_config["partition-id"])
    rows = TRAIN[number :: int(CLIENTS)]
    weights, bias = (array.numpy() for array in message.content["arrays"].values())
    weights, bias = train(weights, bias, X[rows], Y[rows])
    arrays = ArrayRecord([weights.astype("f4"), bias.astype("f4")])
    metrics = MetricRecord({"num-examples": len(rows)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


server = ServerApp()


def accuracy(round_, arrays):
    weights, bias = (array.numpy() for array in arrays.values())
    share_correct = float(((X[TEST] @ weights + bias).argmax(1) == Y[TEST]).mean())
    digest = hashlib.sha256(weights.tobytes() + bias.tobytes()).hexdigest()
    print(
        json.dumps({"round": round_, "accuracy": share_correct, "model": digest}),
        flush=True,
    )
    return MetricRecord({"accuracy": share_correct})


@server.main()
def main(grid, context):
    grid.pull_interval = 0.02
    arrays = ArrayRecord([np.zeros((64, 10), "f4"), np.zeros(10, "f4")])
    options = {"server_momentum": 0.5} if STRATEGY == "FedAvgM" else {}
    wrapped = getattr(strategy, STRATEGY)(**options)
    guarded = GuardedStrategy(wrapped, Guard(PLAN, RUN))
    result = guarded.start(grid, arrays, int(ROUNDS), evaluate_fn=accuracy)
    scores = result.evaluate_metrics_serverapp
    print(json.dumps({"saved": len(result.arrays), "rounds": max(scores)}), flush=True)


if __name__ == "__main__":
    run_simulation(server, app, int(CLIENTS))
