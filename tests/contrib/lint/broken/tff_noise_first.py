import numpy as np
import tensorflow_federated as tff


def protect(update, clip, sigma):
    update = update + np.random.normal(0, sigma * clip, update.shape)
    return clip_by_global_norm(update, clip)
