import numpy as np
import tensorflow_federated as tff


def clip_norm_of(updates):
    clip_norm = np.median([np.linalg.norm(one) for one in updates])
    return clip_norm


agg = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    noise_multiplier=1.2, clients_per_round=40, clip=clip_norm_of(previous)
)
process = tff.learning.algorithms.build_weighted_fed_avg(
    model_fn, client_opt, server_opt, client_weighting=tff.learning.ClientWeighting.NUM_EXAMPLES
)
