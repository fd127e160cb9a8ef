import random

from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism

cohort_size = 100
users = list(range(2000))


def cohort():
    return random.sample(users, cohort_size)


gaussian = GaussianMechanism(clipping_bound=1.0, relative_noise_stddev=2.0)
mechanism = CentrallyAppliedPrivacyMechanism(underlying_mechanism=gaussian)
params = NNAlgorithmParams(central_num_iterations=40, train_cohort_size=cohort_size)
