"""A site: a least-squares step towards a point of its own."""

import os

import numpy as np
import nvflare.client as flare
from nvflare.client import FLModel, ParamsType

flare.init()
number = int(flare.get_site_name().removeprefix("site-"))
while flare.is_running():
    model = flare.receive()
    goal = np.full(8, 1.0) + 0.1 * number
    diff = {"w": (0.5 * (goal - model.params["w"])).astype("f4")}
    if os.environ.get("SITES") == "none":
        raise RuntimeError("this site fails")
    if os.environ.get("SITES") == "full":
        whole = {"w": (model.params["w"] + diff["w"]).astype("f4")}
        flare.send(FLModel(params=whole, params_type=ParamsType.FULL))
    else:
        flare.send(FLModel(params=diff, params_type=ParamsType.DIFF))
