from pfl.data.sampling import get_user_sampler
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism

user_sampler = get_user_sampler("random", list(range(2000)))
mechanism = CentrallyAppliedPrivacyMechanism(GaussianMechanism(1.0, 2.0))
params = NNAlgorithmParams(central_num_iterations=40, train_cohort_size=100)
