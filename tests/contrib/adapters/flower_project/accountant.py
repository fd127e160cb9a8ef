"""Flower's figures beside ours, for 120 of 6,000 clients; prints JSON."""

import json

from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.privacy_accounting import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    SamplingMethod,
)
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

from privplan.contrib.adapters.flower import GroupAccountant
from privplan.errors import InputError

DELTA = 6.98e-5
EVENT = GaussianPrivacyEvent(1.504, 120, 6000)


def config(method, relation, limit=None):
    return PrivacyConfig(
        DELTA, 6000, NeighboringRelation(relation), SamplingMethod(method), limit
    )


plain = config("no-amplification", "add-or-remove-one", 2.0)
theirs = {}
for method, relation in (
    ("no-amplification", "add-or-remove-one"),
    ("without-replacement", "replace-one"),
):
    accountant = RdpAccountant(config(method, relation))
    accountant.compose(EVENT, 50)
    theirs[method] = accountant.get_epsilon(DELTA)
ours = GroupAccountant(plain)
DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.504, 0.5, 120, accountant=ours)
refused = 0
while not ours.would_exceed(EVENT):
    ours.compose(EVENT)
    refused = ours.num_releases + 1
spent = ours.get_privacy_spent()
ours.compose(EVENT, 50 - ours.num_releases)
again = GroupAccountant(plain)
again.load_state_dict(json.loads(json.dumps(ours.state_dict())))
try:
    ours.compose(GaussianPrivacyEvent(1.0, 1, 5))
    error = ""
except InputError as fault:
    error = str(fault)
replace = GroupAccountant(plain, relation="replace_one")
replace.compose(EVENT, 50)
print(
    json.dumps(
        {
            "theirs": theirs, "ours": ours.get_epsilon(DELTA),
            "lower": ours.curve.epsilon(DELTA).lower, "replace_one": replace.get_epsilon(DELTA),
            "again": again.get_epsilon(DELTA), "delta": ours.get_delta(ours.get_epsilon(DELTA)),
            "refused_round": refused, "before": spent.epsilon, "releases": spent.num_releases,
            "error": error,
        }
    )
)  # fmt: skip
