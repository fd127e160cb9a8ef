"""`vit:FOLDER` and `roberta:FOLDER`: transformers of the library `transformers`, from disk.

A folder contains what `save_pretrained` writes: `config.json` and the weights. Nothing is ever
downloaded. A head for another number of classes is initialised at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from privplan.errors import InputError
from simulate.models.modular import Modular

TOKENS = 128
"""Default number of tokens of a record, the usual choice for sentence pairs."""


class Vit(nn.Module):
    """An image classifier of the library; images are interpolated to its input size.

    Args:
        network: the library's module.
        channels: its input channels.
        side: height and width of its inputs.
    """

    def __init__(self, network: nn.Module, channels: int, side: int) -> None:
        super().__init__()
        self.network, self.channels, self.side = network, channels, side

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, channels or 1, H, W] to logits [B, classes]."""
        if x.shape[2:] != (self.side, self.side):
            x = functional.interpolate(x, (self.side, self.side), mode="bilinear")
        logits: Tensor = self.network(x.expand(-1, self.channels, -1, -1)).logits
        return logits


class Roberta(nn.Module):
    """A text classifier of the library.

    Args:
        network: the library's module.
        padding: number of the padding token.
    """

    def __init__(self, network: nn.Module, padding: int) -> None:
        super().__init__()
        self.network, self.padding = network, padding

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [B, T], int64, to logits [B, classes]."""
        present = (x != self.padding)[:, None, None, :].expand(-1, 1, x.shape[1], -1)
        mask = torch.where(present, 0.0, torch.finfo(torch.float32).min)
        logits: Tensor = self.network(x, attention_mask=mask).logits
        return logits


def vit(
    name: str, folder: str, shape: tuple[int, ...] | None = None, classes: int | None = None
) -> Modular:
    """A vision transformer.

    Args:
        name: as in the spec.
        folder: folder of the configuration and the weights.
        shape: shape of an image; the input shape of the transformer when None.
        classes: number of logits; that of the folder's classifier when None.

    Raises:
        InputError: the library is missing, or the folder holds no such transformer.
    """
    config = _config(name, folder, "vit", classes)
    channels, side = config.num_channels, config.image_size

    def wrap(network: nn.Module) -> nn.Module:
        return Vit(network, channels, side)

    return _modular(
        name, folder, shape or (channels, side, side), config, "ImageClassification", wrap
    )


def roberta(
    name: str, folder: str, shape: tuple[int, ...] | None = None, classes: int | None = None
) -> Modular:
    """A RoBERTa that classifies sentences or pairs of them.

    Args:
        name: as in the spec.
        folder: folder of the configuration and the weights.
        shape: (tokens of a record,); at most 128 when None.
        classes: number of logits; that of the folder's classifier when None.

    Raises:
        InputError: the library is missing, or the folder holds no such transformer.
    """
    config = _config(name, folder, "roberta", classes)
    padding = config.pad_token_id
    most = config.max_position_embeddings - padding - 1

    def wrap(network: nn.Module) -> nn.Module:
        return Roberta(network, padding)

    return _modular(
        name, folder, shape or (min(TOKENS, most),), config, "SequenceClassification", wrap
    )


def _config(name: str, folder: str, kind: str, classes: int | None) -> Any:
    """The configuration in a folder, without dropout."""
    try:
        from transformers import AutoConfig
        from transformers.utils import logging
    except ImportError:
        rule = 'needs the package transformers: pip install "privplan[hub]"'
        raise InputError.one("model.name", rule, name) from None
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        if not (Path(folder) / "config.json").is_file():
            raise OSError
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError):
        rule = f"must name a folder with the config.json and the weights of a {kind}"
        raise InputError.one("model.name", rule, name) from None
    if config.model_type != kind:
        rule = f"must name the folder of a {kind}, not of a {config.model_type}"
        raise InputError.one("model.name", rule, name)
    if classes is not None:
        config.num_labels = classes
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    return config


def _modular(
    name: str,
    folder: str,
    shape: tuple[int, ...],
    config: Any,
    task: str,
    wrap: Callable[[nn.Module], nn.Module],
) -> Modular:
    """The model of a configuration, initialised with the folder's weights."""
    import transformers

    auto = getattr(transformers, f"AutoModelFor{task}")

    def build() -> nn.Module:
        return wrap(auto.from_config(config, attn_implementation="eager"))

    def start() -> nn.Module:
        loaded = auto.from_pretrained(
            folder,
            config=config,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            attn_implementation="eager",
        )
        return wrap(loaded)

    return Modular(name, shape, config.num_labels, build, start=partial(_started, name, start))


def _started(name: str, start: Callable[[], nn.Module]) -> nn.Module:
    """The module with the folder's weights.

    Raises:
        InputError: the weights are missing or cannot be read.
    """
    try:
        return start()
    except (OSError, ValueError, RuntimeError) as error:
        rule = f"must name a folder with weights that can be read ({str(error).splitlines()[0]})"
        raise InputError.one("model.name", rule, name) from None


PRETRAINED: Mapping[str, Callable[..., Modular]] = MappingProxyType(
    {"roberta": roberta, "vit": vit}
)
"""Each takes ``name``, ``folder``, and ``shape`` and ``classes``, which have defaults."""
