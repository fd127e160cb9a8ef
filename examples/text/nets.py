"""A small transformer with random weights, of which only LoRA adapters are trained.

With ``from_pretrained`` instead of a configuration the frozen weights are those of a library.
"""

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def build(rank: int = 4) -> PeftModel:
    """The transformer with adapters in its attention; all other parameters are frozen."""
    config = LlamaConfig(
        vocab_size=17, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=16, use_cache=False,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the frozen weights are the same in every run
        base = LlamaForCausalLM(config)
    adapters = LoraConfig(
        r=rank, target_modules=["q_proj", "v_proj", "lm_head"], lora_dropout=0.1
    )
    return get_peft_model(base, adapters)
