"""Where a pipeline has its things in the workspace: where the old recipes have them, so that theirs are found."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from agent.workloads.pai_megatron.models import Family, Size

FILES = (
    "qwen-datasets/mmap_qwen3_datasets_text_document.bin",
    "qwen-datasets/mmap_qwen3_datasets_text_document.idx",
    "datasets/alpaca_zh-train-general.json",
    "datasets/alpaca_zh-valid-general.json",
)
"""Below A4_DATASET_URL."""


class Paths:
    """Those of one model in one workspace."""

    def __init__(self, workspace: str, family: Family, size: Size) -> None:
        model = size.model.partition("/")[2]
        self.workspace, self.family, self.size = workspace, family, size
        self.checkout = f"{workspace}/Pai-Megatron-Patch"
        self.older_checkouts = (f"{self.checkout}-GCP",)
        self.examples = f"{self.checkout}/examples/{family.scripts}"
        self.convertor = f"{self.checkout}/toolkits/distributed_checkpoints_convertor"
        self.preprocessing = f"{self.checkout}/toolkits/sft_data_preprocessing"
        self.hugging_face = f"{workspace}/{family.models}/{model}"
        self.converted = f"{workspace}/{family.converted}/{model}-to-mcore"
        self.older_converted = (f"{self.converted}-bf16",)
        self.datasets = f"{workspace}/{family.datasets}"
        self.pretraining_data = f"{self.datasets}/mmap_qwen3_datasets_text_document"
        self.json_data = f"{self.datasets}/alpaca_zh-train-general.json"
        self.json_valid_data = f"{self.datasets}/alpaca_zh-valid-general.json"

    def sft_prefix(self, values: Mapping[str, str]) -> str:
        """Prefix of the data for fine-tuning, to which the script adds "_text_document": other lengths lie beside."""
        seq_len, packing = values["SEQ_LEN"], values.get("MP_SFT_PACKING", "false")
        usual = seq_len == self.family.defaults["SEQ_LEN"] and packing == "false"
        own = "" if usual else f"_seq{seq_len}" + ("_packed" if packing == "true" else "")
        return f"{self.datasets}/mmap_qwen3_datasets_sft{own}"

    def outputs(self, step: str, values: Mapping[str, str]) -> str:
        """OUTPUT_BASEPATH of a training. Those with other arguments have another: the script's own names do not tell
        all of them apart."""
        text = "\n".join(f"{name}={values[name]}" for name in sorted(values))
        return f"{self.workspace}/logs/{self.family.outputs}_{step}/{sha256(text.encode()).hexdigest()[:8]}"
