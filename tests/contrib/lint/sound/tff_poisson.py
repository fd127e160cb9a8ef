"""The tutorial on differential privacy: Poisson sampling of clients."""
import numpy as np
import tensorflow_federated as tff

total_clients = 3383
sampling_prob = 50 / total_clients
rounds = 100
aggregation_factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    noise_multiplier=1.0, clients_per_round=50, clip=0.5
)
learning_process = tff.learning.algorithms.build_unweighted_fed_avg(
    model_fn, client_optimizer_fn, server_optimizer_fn, model_aggregator=aggregation_factory
)
state = learning_process.initialize()
for round_num in range(rounds):
    x = np.random.uniform(size=total_clients)
    sampled = [train_data.client_ids[i] for i in range(total_clients) if x[i] < sampling_prob]
    state = learning_process.next(state, datasets(sampled)).state
