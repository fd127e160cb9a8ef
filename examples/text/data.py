"""A data set of short texts by several authors, tokenised by a tokenizer that is built here."""

import numpy as np
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import simulate

AUTHORS, STRICT, TEXTS, TOKENS = 20, 12, 8, 8
WORDS = [
    *("the", "a", "small", "old", "cat", "dog", "bird", "sees"),
    *("hears", "likes", "tree", "house", "river", "and", "then"),
]


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token per word."""
    names = ["[PAD]", "[UNK]", *WORDS]
    words = models.WordLevel(
        {word: number for number, word in enumerate(names)}, "[UNK]"
    )
    plain = Tokenizer(words)
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]"
    )


def texts() -> Dataset:
    """The texts with their authors and the authors' privacy groups."""
    generator, rows = np.random.default_rng(0), []
    for author in range(AUTHORS):
        for _ in range(TEXTS):
            start = generator.integers(len(WORDS))
            words = [WORDS[(start + 2 * step) % len(WORDS)] for step in range(TOKENS)]
            group = "strict" if author < STRICT else "loose"
            rows.append(
                {"text": " ".join(words), "author": f"a{author:02d}", "group": group}
            )
    return Dataset.from_list(rows)


def data() -> simulate.Data:
    """The records: token ids, of which each predicts the next."""
    encode, found = tokenizer(), texts()
    ids = encode(list(found["text"]), padding="max_length", max_length=TOKENS)[
        "input_ids"
    ]
    table = found.remove_columns("text").add_column("ids", ids)
    return simulate.Data.from_table(
        table,
        features=["ids"],
        client="author",
        group="group",
        task="next-token",
        name="texts",
    )
