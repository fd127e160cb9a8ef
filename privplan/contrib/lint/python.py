"""What lint understands of Python, PyTorch and numpy, whatever the framework."""

from __future__ import annotations

import re

PACKAGES = (
    "__future__ argparse collections copy datetime functools itertools json logging math "
    "numpy os pathlib pandas random sklearn sys time torch torchvision tqdm typing warnings "
)
"""Packages that change nothing by being imported."""

PATHS = re.compile(
    r"torch\.(device|Tensor|manual_seed|no_grad|save|tensor|zeros|ones|randn|rand|randint|arange|max"
    r"|argmax|sum|mean|sigmoid|softmax|relu|flatten|float32|long|nn|optim|utils|cuda)"
    r"|torch\.nn(\.functional(\.[a-z_]+[a-z])?|\.[A-Z]\w*)?"
    r"|torch\.nn\.functional\.\w+[a-z0-9]"
    r"|torch\.optim\.(SGD|Adam|AdamW|RMSprop|Adagrad|lr_scheduler\.[A-Z]\w+)"
    r"|torch\.utils\.data\.(DataLoader|Dataset|TensorDataset|random_split)"
    r"|torch\.cuda\.(is_available|manual_seed|manual_seed_all|empty_cache)"
    r"|torchvision\.(datasets|transforms|models)(\.\w+)?"
    r"|tqdm(\.auto|\.notebook)?\.(tqdm|trange)|tqdm\.tqdm\.write"
    r"|numpy\.(mean|array|asarray|ndarray|float32|arange|zeros|ones|random\.seed)"
    r"|(math|datetime|time|typing|logging|pathlib|warnings|collections)\.\w+"
    r"|os\.(path\.\w+|makedirs)|random\.seed|json\.dumps?|__future__\.annotations"
)
"""Names of these packages that change neither a mechanism nor what it is given."""

BUILTINS = (
    "Exception False None True ValueError __name__ bool dict enumerate float int isinstance "
    "len list max min object print range round sorted str sum super tuple zip "
)
"""Functions of Python that change nothing but what they return."""

ATTRIBUTES = (
    "__init__ append argmax backward cpu cuda detach device dim eq eval extend flatten float "
    "format forward get_last_lr info item items join keys long max mean named_parameters "
    "numel numpy parameters permute reshape set_description set_postfix shape size squeeze "
    "state_dict step sum to tolist train unsqueeze values view write zero_grad "
)
"""Attributes and methods of objects: tensors, modules, optimisers, lists, texts."""

CALLS = {
    "DataLoader": "dataset batch_size shuffle | num_workers pin_memory "
    "persistent_workers prefetch_factor",
}
"""Arguments of functions whose arguments matter."""

BASES = re.compile(r"(torch\.nn|torch)\.Module|torch\.utils\.data\.Dataset|object")
"""Classes from which a class of the file may inherit."""

METHODS = "__init__ __len__ __getitem__ __call__ forward "
"""Methods that a class of the file may replace."""

PARAMETERS = "filter format id input max min sum "
"""Names of Python that scripts use for values of their own."""
