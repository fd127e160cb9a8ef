"""A job of four sites in NVFlare's simulator: ``python run.py PLAN RUN WORKSPACE``."""

import os
import sys
from pathlib import Path

import numpy as np
from nvflare.fuel.utils.constants import FrameworkType
from nvflare.job_config.api import FedJob
from nvflare.job_config.defs import FilterType
from nvflare.job_config.script_runner import ScriptRunner

from privplan.contrib.adapters.nvflare import (
    ClippingFilter,
    GuardedFedAvg,
    check_released,
    save_model,
)

plan, run, workspace = sys.argv[1:4]
KIND = "FULL" if os.environ.get("SITES") == "full" else "DIFF"
SITES = {"strict": ["site-1", "site-2"], "loose": ["site-3", "site-4"]}
initial = f"{workspace}-initial.npz"
save_model({"w": np.zeros(8, "f4")}, initial)
job = FedJob(name="guarded")
job.to_server(GuardedFedAvg(plan, run, SITES, initial))
script = str(Path(__file__).with_name("client.py"))
for sites in SITES.values():
    for site in sites:
        job.to(
            ScriptRunner(
                script=script, framework=FrameworkType.NUMPY, params_transfer_type=KIND
            ),
            site,
        )
        job.to(
            ClippingFilter(0.5),
            site,
            tasks=["train"],
            filter_type=FilterType.TASK_RESULT,
        )
job.simulator_run(workspace, threads=4)
check_released(run)
