import dp_accounting
import numpy as np
import tensorflow_federated as tff

TOTAL = 5000
PER_ROUND = 100
ROUNDS = 60
NOISE = 0.9

aggregator = tff.learning.dp_aggregator(NOISE, PER_ROUND, zeroing=False)
process = tff.learning.algorithms.build_unweighted_fed_avg(
    model_fn, client_opt, server_opt, model_aggregator=aggregator
)
state = process.initialize()
for _ in range(ROUNDS):
    cohort = np.random.choice(client_ids, size=PER_ROUND, replace=False)
    state = process.next(state, [dataset(one) for one in cohort]).state

event = dp_accounting.SelfComposedDpEvent(
    dp_accounting.PoissonSampledDpEvent(PER_ROUND / TOTAL, dp_accounting.GaussianDpEvent(NOISE)), ROUNDS
)
accountant = dp_accounting.rdp.RdpAccountant()
accountant.compose(event)
print(accountant.get_epsilon(target_delta=1e-5))
