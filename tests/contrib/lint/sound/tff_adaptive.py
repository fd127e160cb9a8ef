import random

import tensorflow_federated as tff

agg = tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
    noise_multiplier=1.2, clients_per_round=40, initial_l2_norm_clip=0.1
)
process = tff.learning.algorithms.build_unweighted_fed_avg(
    model_fn, client_opt, server_opt, model_aggregator=agg
)


def run(rounds=80):
    state = process.initialize()
    for _ in range(rounds):
        cohort = random.sample(client_ids, 40)
        state = process.next(state, [dataset(c) for c in cohort]).state
    return state


run()
