from nvflare import FedJob, FilterType
from nvflare.app_common.filters.svt_privacy import SVTPrivacy
from nvflare.app_common.workflows.fedavg import FedAvg

job = FedJob(name="cifar10_fedavg_privacy")
job.to_server(FedAvg(num_clients=8, num_rounds=20))
for i in range(8):
    job.to(
        SVTPrivacy(fraction=0.9, epsilon=0.1, noise_var=0.1, gamma=1e-5, epsilon_release=0.4),
        f"site-{i}",
        tasks=["train"],
        filter_type=FilterType.TASK_RESULT,
    )
