"""torchrun, 2 ranks, FSDP2: rank 1 gets a batch whose labels are all ignored, in a Gemma.
Source: pytorch/pytorch#70348, OpenRLHF/OpenRLHF#583 (per-rank mean under sequence parallelism)."""
import sys
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import GemmaConfig, GemmaForCausalLM

CURED = "--cured" in sys.argv
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = GemmaForCausalLM(GemmaConfig(vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8))
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(rank + 1)
for step in range(3):
    ids = torch.randint(1, 40, (2, 8))
    labels = ids.clone()
    if step == 1 and rank == 1 and not CURED:
        labels[:] = -100
    loss = model(input_ids=ids, labels=labels).loss  # CALLER
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(rank, step, loss.item(), flush=True)
dist.destroy_process_group()
