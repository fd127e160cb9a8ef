from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.federated_averaging import FederatedAveraging, NNAlgorithmParams
from pfl.data import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism, PLDPrivacyAccountant

users = FederatedDataset(make_dataset, get_user_sampler("minimize_reuse", list(range(1000))))
# no amplification is assumed: each user may be in every cohort
accountant = PLDPrivacyAccountant(
    num_compositions=30, sampling_probability=1.0, mechanism="gaussian", epsilon=5.0, delta=1e-5
)
privacy = CentrallyAppliedPrivacyMechanism(
    GaussianMechanism.from_privacy_accountant(accountant=accountant, clipping_bound=0.5)
)
FederatedAveraging().run(
    NNAlgorithmParams(central_num_iterations=30, train_cohort_size=100, val_cohort_size=0),
    SimulatedBackend(training_data=users, val_data=None, postprocessors=[privacy]),
    model,
)
