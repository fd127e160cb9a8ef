"""A strategy of Flower whose clients reply in memory: ``python memory.py PLAN RUN``.

The model has a count and a single number beside its weights, as one with a batch
normalisation. One client answers the question for its number with text. Prints a line
of JSON.
"""

import json
import sys

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from privplan.contrib.adapters.flower import CLIENT, IDENTIFY, GuardedStrategy
from privplan.guard import Guard

TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
PLAN, RUN = sys.argv[1:3]


def record(weights, scale, count):
    """A model as Flower has it."""
    arrays = {"weights": weights, "scale": scale, "count": count}
    return ArrayRecord(
        {name: Array(np.asarray(array)) for name, array in arrays.items()}
    )


class Grid:
    """Forty clients, of which node 3 tells no number.

    All come back as other nodes half way.
    """

    exchanges = 0

    def get_node_ids(self):
        """Numbers of the nodes."""
        restarted = 1000 if self.exchanges > 6 else 0
        return list(range(restarted + 1, restarted + 41))

    def send_and_receive(self, messages, timeout=None):
        """What the clients reply."""
        replies = []
        self.exchanges += 1
        for message in messages:
            node = message.metadata.dst_node_id % 1000
            message.metadata.__dict__["_message_id"] = "any"
            configs = message.content.config_records.values()
            if IDENTIFY in next(iter(configs), {}):
                number = "abc" if node == 3 else node - 1
                content = RecordDict({"config": ConfigRecord({CLIENT: number})})
            else:
                sent = message.content.array_records["arrays"]
                weights, scale, count = (array.numpy() for array in sent.values())
                trained = record(weights + 0.1, scale.reshape(()), count + 1)
                content = RecordDict({"arrays": trained})
            replies.append(Message(content, reply_to=message))
        return replies


guarded = GuardedStrategy(FedAvg(min_available_nodes=2), Guard(PLAN, RUN))
start = record(np.zeros((3, 2), "f4"), np.array(0.0, "f4"), np.array(5))
guarded.start(Grid(), start, num_rounds=guarded.guard.plan.spec.rounds)
with Guard(PLAN, RUN) as guard:
    count = guard.model["arrays/count"]
    outcome = guard.verdict().outcome
    numbers = [count.dtype.kind, list(count.shape), int(count)]
    print(json.dumps({"rounds": guard.round - 1, "count": numbers, "verdict": outcome}))
