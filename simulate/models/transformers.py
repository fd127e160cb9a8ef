"""``vit:FOLDER`` and ``roberta:FOLDER``: pretrained transformers from disk.

A folder contains what ``save_pretrained`` of the library ``transformers`` writes:
``config.json`` and the weights. Nothing is ever downloaded. A head for another number
of classes is initialised at random.
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
from simulate.data.user_code import error_line
from simulate.models.modular import Modular

TOKENS = (
    128  # default number of tokens of a record, the usual choice for sentence pairs
)


class Vit(nn.Module):
    """An image classifier of the library; images are interpolated to its input size."""

    def __init__(self, network: nn.Module, channels: int, side: int) -> None:
        super().__init__()
        self.network = network
        self.channels = channels
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, channels or 1, H, W] to logits [B, classes].

        A grey image becomes one whose channels are equal.
        """
        if x.shape[2:] != (self.side, self.side):
            x = functional.interpolate(x, (self.side, self.side), mode="bilinear")
        logits: Tensor = self.network(x.expand(-1, self.channels, -1, -1)).logits
        return logits


class Roberta(nn.Module):
    """A text classifier of the library, which does not attend to padding tokens."""

    def __init__(self, network: nn.Module, padding: int) -> None:
        super().__init__()
        self.network = network
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [B, T], int64, to logits [B, classes]."""
        # Attention adds this to its scores; a mask of four dimensions is used as it is.
        present = (x != self.padding)[:, None, None, :].expand(-1, 1, x.shape[1], -1)
        mask = torch.where(present, 0.0, torch.finfo(torch.float32).min)
        logits: Tensor = self.network(x, attention_mask=mask).logits
        return logits


def vit(
    name: str,
    folder: str,
    shape: tuple[int, ...] | None = None,
    classes: int | None = None,
) -> Modular:
    """A vision transformer.

    Args:
        name: name of the model in the spec.
        folder: folder with the configuration and the weights.
        shape: shape of a record [channels, H, W]; by default the network's input.
        classes: number of logits; by default that of the configuration.

    Raises:
        InputError: the folder has no vision transformer, or ``transformers`` is
            missing.
    """
    config = _config(name, folder, "vit", classes)
    channels = config.num_channels
    image_side = config.image_size
    shape = shape or (channels, image_side, image_side)
    wrap = partial(Vit, channels=channels, side=image_side)
    return _modular(name, folder, shape, config, "ImageClassification", wrap)


def roberta(
    name: str,
    folder: str,
    shape: tuple[int, ...] | None = None,
    classes: int | None = None,
) -> Modular:
    """A RoBERTa that classifies sentences or pairs of them.

    Args:
        name: name of the model in the spec.
        folder: folder with the configuration and the weights.
        shape: number of tokens of a record [T]; by default `TOKENS`, or all that fit.
        classes: number of logits; by default that of the configuration.

    Raises:
        InputError: the folder has no RoBERTa, or ``transformers`` is missing.
    """
    config = _config(name, folder, "roberta", classes)
    padding = config.pad_token_id
    # Positions of RoBERTa are counted from the one after the padding token's number.
    max_tokens = config.max_position_embeddings - padding - 1
    shape = shape or (min(TOKENS, max_tokens),)
    wrap = partial(Roberta, padding=padding)
    return _modular(name, folder, shape, config, "SequenceClassification", wrap)


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

    # The library takes a path that does not exist for the name of a repository.
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
    config.hidden_dropout_prob = 0.0
    config.attention_probs_dropout_prob = 0.0
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

    auto_class = getattr(transformers, f"AutoModelFor{task}")

    # "eager" is attention in plain operations, over which `vmap` works.
    def build() -> nn.Module:
        return wrap(auto_class.from_config(config, attn_implementation="eager"))

    def start() -> nn.Module:
        try:
            pretrained = auto_class.from_pretrained(
                folder,
                config=config,
                local_files_only=True,
                ignore_mismatched_sizes=True,  # a head of another number of classes
                attn_implementation="eager",
            )
        except (OSError, ValueError, RuntimeError) as error:
            reason = error_line(error)
            rule = f"must name a folder with weights that can be read ({reason})"
            raise InputError.one("model.name", rule, name) from None
        return wrap(pretrained)

    return Modular(name, shape, config.num_labels, build, start=start)


PRETRAINED: Mapping[str, Callable[..., Modular]] = MappingProxyType(
    {"roberta": roberta, "vit": vit}
)
"""Each takes ``name`` and ``folder``; ``shape`` and ``classes`` have defaults."""
