"""Where a pipeline has its things in the workspace: where the old recipes have them, so that theirs are found."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from agent.workloads.pai_megatron.models import Family, Size

FILES = (
    "qwen-datasets/mmap_qwen3_datasets_text_document.bin",
    "qwen-datasets/mmap_qwen3_datasets_text_document.idx",
    "datasets/alpaca_zh-train-general.json",
    "datasets/alpaca_zh-valid-general.json",
)
"""Below A4_DATASET_URL."""


class Paths(NamedTuple):
    """Those of one model in one workspace."""

    workspace: str
    family: Family
    size: Size

    @property
    def checkout(self) -> str:
        return f"{self.workspace}/Pai-Megatron-Patch"

    @property
    def older_checkouts(self) -> tuple[str, ...]:
        return (f"{self.checkout}-GCP",)

    @property
    def examples(self) -> str:
        return f"{self.checkout}/examples/{self.family.scripts}"

    @property
    def convertor(self) -> str:
        return f"{self.checkout}/toolkits/distributed_checkpoints_convertor"

    @property
    def preprocessing(self) -> str:
        return f"{self.checkout}/toolkits/sft_data_preprocessing"

    @property
    def hugging_face(self) -> str:
        return f"{self.workspace}/{self.family.models}/{self._model}"

    @property
    def converted(self) -> str:
        return f"{self.workspace}/{self.family.converted}/{self._model}-to-mcore"

    @property
    def older_converted(self) -> tuple[str, ...]:
        return (f"{self.converted}-bf16",)

    @property
    def datasets(self) -> str:
        return f"{self.workspace}/{self.family.datasets}"

    @property
    def pretraining_data(self) -> str:
        return f"{self.datasets}/mmap_qwen3_datasets_text_document"

    @property
    def json_data(self) -> str:
        return f"{self.datasets}/alpaca_zh-train-general.json"

    @property
    def json_valid_data(self) -> str:
        return f"{self.datasets}/alpaca_zh-valid-general.json"

    def sft_prefix(self, seq_len: str, packing: str) -> str:
        """Prefix of the data for fine-tuning, to which the script adds "_text_document": other lengths lie beside."""
        usual = seq_len == self.family.defaults["SEQ_LEN"] and packing == "false"
        own = "" if usual else f"_seq{seq_len}" + ("_packed" if packing == "true" else "")
        return f"{self.datasets}/mmap_qwen3_datasets_sft{own}"

    def outputs(self, step: str, values: Mapping[str, str]) -> str:
        """OUTPUT_BASEPATH of a training. Those with other arguments have another: the script's own names do not tell
        all of them apart."""
        text = "\n".join(f"{name}={values[name]}" for name in sorted(values))
        return f"{self.workspace}/logs/{self.family.outputs}_{step}/{sha256(text.encode()).hexdigest()[:8]}"

    @property
    def _model(self) -> str:
        return self.size.model.partition("/")[2]
