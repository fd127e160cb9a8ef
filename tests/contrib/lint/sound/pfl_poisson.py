import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.hyperparam import NNTrainHyperParams
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism, PLDPrivacyAccountant

population, cohort = 100_000, 1000
accountant = PLDPrivacyAccountant(
    num_compositions=500, sampling_probability=cohort / population,
    mechanism="gaussian", epsilon=2.0, delta=1e-6,
)
mechanism = CentrallyAppliedPrivacyMechanism(
    GaussianMechanism.from_privacy_accountant(accountant=accountant, clipping_bound=0.4)
)
rng = np.random.default_rng(0)


def sample_cohort(users):
    return [user for user, coin in zip(users, rng.binomial(1, cohort / population, len(users))) if coin]


backend = SimulatedBackend(training_data=data, val_data=None, postprocessors=[mechanism])
algorithm_params = NNAlgorithmParams(central_num_iterations=500)
