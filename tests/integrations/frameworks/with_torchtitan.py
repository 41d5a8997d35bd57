"""torchtitan's own trainer and debug model. It has no CPU mode: its table of device functions is replaced, and its flex attention, which
has no backward on CPU, by scaled dot-product attention; torch 2.13 lacks a function that its nightly builds have."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integrations.page import lines_of

pytestmark = pytest.mark.skipif(find_spec("torchtitan") is None, reason="torchtitan is not installed (./dev setup)")

ON_CPU = r"""
import os, sys, types
import torch
from torchtitan.tools import utils

STATISTICS = dict.fromkeys(("active_bytes.all.peak", "reserved_bytes.all.peak", "num_alloc_retries", "num_ooms"), 0)
TABLE = {
    "get_device_name": lambda *_: "CPU",
    "get_device_properties": lambda *_: types.SimpleNamespace(total_memory=1 << 34, name="CPU"),
    "memory_stats": lambda *_: STATISTICS,
    "current_device": lambda *_: 0,
    "device_count": lambda: 1,
}


class Device(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return TABLE.get(name) or getattr(torch.cpu, name, None) or (lambda *_, **more: None)


utils.device_type, utils.device_module = "cpu", Device("cpu")
torch.distributed.set_timeout = lambda *_: None

import torchtitan.models.llama3.config_registry as registry
from torchtitan.models.common import attention as attentions
from torchtitan.train import main
from torchtitan.trainer import Trainer


def attention(q, k, v, *, scale, enable_gqa, **_):
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=enable_gqa)
    return out, types.SimpleNamespace(lse=None)


attentions.FlexAttention._compiled_flex_attn = staticmethod(attention)
attentions._compiled_create_block_mask = attentions.create_block_mask  # of a mask that nobody reads; to compile it takes 15 s
adamw, close = registry.default_adamw, Trainer.close
registry.default_adamw = lambda lr: adamw(lr=float(os.environ.get("LR", lr)))


def closed(self):
    print("trained to", self.step, [p.double().sum().item() for m in self.model_parts for p in m.parameters()], flush=True)
    close(self)


Trainer.close = closed
sys.argv[0] = "torchtitan.train"
main()
"""
SHORT = "--training.steps 3 --training.seq_len 64 --training.local_batch_size 2 --validator.freq 100 --debug.seed 1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the tokenizer and the texts that the debug model's configuration asks for, and torchtitan's module of training, on CPU."""
    (tmp_path / "on_cpu.py").write_text(ON_CPU)
    assets = tmp_path / "tests" / "assets"
    (assets / "tokenizer").mkdir(parents=True)
    (assets / "c4_test").mkdir()
    words = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(300))]
    special = [
        {"id": i, "content": words[i], **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False), "special": True}
        for i in (1, 2)
    ]
    model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": "<unk>"}
    tokenizer = {"version": "1.0", "added_tokens": special, "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    named = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (assets / "tokenizer" / "tokenizer.json").write_text(json.dumps(tokenizer))
    (assets / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(named))
    texts = (" ".join(f"w{i * j % 300}" for j in range(200)) for i in range(1, 201))
    (assets / "c4_test" / "data.json").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return tmp_path


def ran(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], str]:
    """What a run of one rank trained to, and all that it said."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    words = shlex.split(
        command.replace("--nproc-per-node 2", "--standalone --nproc-per-node 1").replace("-m torchtitan.train", "on_cpu.py")
    )
    if words.pop(0) == "torchrun":
        words = ["-m", "torch.distributed.run", *words]
    done = subprocess.run([sys.executable, *words, *SHORT.split()], cwd=folder, capture_output=True, text=True, timeout=300)
    said = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    return [line for line in said.splitlines() if line.startswith("trained to")], said


def test_trainer_is_silent_where_it_is_well_and_an_overflow_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = lines_of("torchtitan", "sh").strip()
    assert watched.count(" -m numscope run") == 1 and watched.startswith("torchrun ")
    same, said = ran(folder, watched, monkeypatch)
    assert len(same) == 1 and same[0].startswith("trained to 3 [") and "no finding" in said, said
    # Without the launcher, whose start takes as long as these trainings.
    ports = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29701", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    for name, value in ports.items():
        monkeypatch.setenv(name, value)
    script = watched[watched.index(" -m numscope run") :]
    bare, said = ran(folder, script.replace(" -m numscope run", "python"), monkeypatch)
    assert bare == same, said
    monkeypatch.setenv("LR", "1e30")
    _, said = ran(folder, f"python{script}", monkeypatch)
    assert "Culprit  aten.mul (backward) in norm" in said and "When     step 1" in said, said
    assert "Lower the learning rate (5e+29) or clip gradients" in said
