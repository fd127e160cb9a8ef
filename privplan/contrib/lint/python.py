"""What lint understands of Python and PyTorch, whatever the framework.

Nothing here can mix examples, keep them, or end a loop. An epsilon is printed only for
a file that needs nothing else.
"""

import re

SYNTAX = (
    "AnnAssign Assign Attribute BinOp Call ClassDef Compare Constant Expr For FormattedValue "
    "FunctionDef If IfExp Import ImportFrom JoinedStr List Name Pass Return Tuple UnaryOp "
)
"""Statements and expressions of Python, by their names in ``ast``."""

MAIN = "__name__ == '__main__'"
"""The only condition of an ``if``."""

PACKAGES = "__future__ math os random sys time torch torchvision tqdm typing warnings "
"""Packages that change nothing by being imported."""

PATHS = re.compile(
    r"torch\.(device|save|nn|optim|utils|cuda|cuda\.is_available)"
    r"|torch\.nn\.(functional|Module|Sequential|Linear|Conv[12]d|Flatten|Embedding|Dropout"
    r"|ReLU|Tanh|GELU|MaxPool2d|AvgPool2d|GroupNorm|LayerNorm)"
    r"|torch\.nn\.functional\.(relu|tanh|gelu|max_pool2d|avg_pool2d)"
    r"|torch\.optim\.(SGD|Adam|AdamW|RMSprop|Adagrad|lr_scheduler|lr_scheduler\.[A-Z]\w+)"
    r"|torch\.utils\.data(\.DataLoader)?"
    r"|torchvision\.(datasets(\.\w+)?|transforms)"
    r"|torchvision\.transforms\.(Compose|ToTensor|Normalize|Resize|CenterCrop|RandomCrop"
    r"|RandomHorizontalFlip)"
    r"|tqdm(\.auto|\.notebook)?\.(tqdm|trange)|math\.\w+|typing\.\w+|warnings\.\w+"
)
"""Names of these packages that change neither a mechanism nor what it is given."""

LOSSES = re.compile(
    r"torch\.nn\.(CrossEntropyLoss|BCEWithLogitsLoss|MSELoss|NLLLoss)"
    r"|torch\.nn\.functional\.(cross_entropy|binary_cross_entropy_with_logits|mse_loss|nll_loss)"
)
"""Losses that are means over the examples, where nothing else is said."""

BUILTINS = "False None True __name__ enumerate float int len print range super "
"""Functions of Python that change nothing but what they return."""

ATTRIBUTES = (
    "__init__ backward cuda eval named_parameters parameters size state_dict step to "
    "train view zero_grad "
)
"""Attributes and methods of objects: tensors, modules, optimisers."""

CALLS = {
    "DataLoader": "dataset batch_size shuffle | num_workers pin_memory "
    "persistent_workers prefetch_factor",
    "Embedding": "num_embeddings embedding_dim",
    "Flatten": "",
    "CrossEntropyLoss": "",
    "BCEWithLogitsLoss": "",
    "MSELoss": "",
    "NLLLoss": "",
    "cross_entropy": "input target",
    "binary_cross_entropy_with_logits": "input target",
    "mse_loss": "input target",
    "nll_loss": "input target",
}
"""Arguments of functions whose arguments matter."""

BASES = re.compile(r"torch\.nn\.Module")
"""Classes from which a class of the file may inherit."""

METHODS = "__init__ forward "
"""Methods that a class of the file may have."""

PARAMETERS = "filter format id input max min sum "
"""Names of Python that scripts use for values of their own."""
