"""torchrun program: the real Megatron trains a dense Qwen3 of two layers on random tokens.

Its options are those with which Pai's scripts start theirs. While the file that A4_TEST_SLOW names exists, the training
is as slow as one that can be looked at. Megatron is what PYTHONPATH or the Python has: core_v0.15.3 and 0.19.2 work.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import time
from typing import Any

import numpy
import torch

if not hasattr(numpy, "product"):
    numpy.product = numpy.prod  # core_v0.15.3 was made for NumPy 1
import megatron.core.datasets.utils
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.training import arguments, get_args, pretrain

MODEL = """
    --num-layers 2 --hidden-size 256 --ffn-hidden-size 512 --num-attention-heads 8 --kv-channels 32
    --group-query-attention --num-query-groups 4 --qk-layernorm --normalization RMSNorm --swiglu --disable-bias-linear
    --position-embedding-type rope --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0
    --tokenizer-type NullTokenizer --vocab-size 1000 --max-position-embeddings 128 --bf16
    --transformer-impl local --no-persist-layer-norm --no-gradient-accumulation-fusion --no-rope-fusion
    --no-masked-softmax-fusion --mock-data --split 100,0,0 --eval-iters 0 --eval-interval 1000000
    --log-interval 1 --log-throughput --ckpt-format torch_dist
    --no-save-optim --no-save-rng --no-load-optim --no-load-rng
"""
OF_PAI = ("--dataset", "--train-mode", "--max-padding-length", "--data-path", "--attention-backend")
"""Options that Pai's own launcher knows, or that do not go with this model."""
SLOW_SECONDS = 0.3
"""One sample, of which each of a rank's two workers has one ready."""


class RandomTokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sample N is the same on all ranks and in all attempts."""

    def __init__(self, samples: int, length: int, vocabulary: int) -> None:
        self.samples, self.length, self.vocabulary = samples, length, vocabulary

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if os.path.exists(os.environ.get("A4_TEST_SLOW", "")):
            time.sleep(SLOW_SECONDS)
        chosen = torch.Generator().manual_seed(index)
        tokens = torch.randint(self.vocabulary, (self.length + 1,), generator=chosen)
        return {"tokens": tokens[:-1], "labels": tokens[1:]}


def datasets(samples: tuple[int, int, int]) -> tuple[RandomTokens, None, None]:
    args = get_args()
    return RandomTokens(2 * samples[0], args.seq_length, args.vocab_size), None, None


datasets.is_distributed = True  # type: ignore[attr-defined]


def model(pre_process: bool = True, post_process: bool = True, **_: Any) -> GPTModel:
    args = get_args()
    return GPTModel(
        config=arguments.core_transformer_config_from_args(args),
        transformer_layer_spec=get_gpt_layer_local_spec(qk_layernorm=True, normalization="RMSNorm"),
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings,
        pre_process=pre_process,
        post_process=post_process,
        parallel_output=True,
        share_embeddings_and_output_weights=False,
        position_embedding_type="rope",
    )


def loss(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Sum over all tokens, their number, and both for the log."""
    total = output.float().sum()
    tokens = torch.tensor(output.numel(), dtype=torch.int, device=output.device)
    return total, tokens, {"lm loss": torch.stack([total.detach(), tokens.float()])}


def forward_step(data: Any, model: GPTModel) -> tuple[torch.Tensor, Any]:
    batch = {name: value.cuda(non_blocking=True) for name, value in next(data).items()}
    tokens = batch["tokens"]
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    return model(tokens, positions, None, labels=batch["labels"]), loss


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in OF_PAI:
        parser.add_argument(option)
    sys.argv[1:] = parser.parse_known_args()[1] + MODEL.split()
    megatron.core.datasets.utils.compile_helpers = lambda: None  # only its own datasets need them
    kind = ModelType.encoder_or_decoder
    if "cfg_container" in inspect.signature(pretrain).parameters:
        from megatron.training.argument_utils import pretrain_cfg_container_from_args

        config = pretrain_cfg_container_from_args(arguments.parse_and_validate_args())
        pretrain(config, datasets, kind, forward_step, model_provider=model)
    else:
        pretrain(datasets, model, kind, forward_step)


if __name__ == "__main__":  # the writer of checkpoints imports this file anew
    main()
