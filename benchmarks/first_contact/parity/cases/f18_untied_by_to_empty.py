from tiny import *
# https://github.com/verl-project/verl/pull/7835, https://github.com/NVIDIA-NeMo/Automodel/pull/2213: to_empty() unties head and embedding,
# values come right from the state dict, and the embedding gets only its input side's gradient
from torch.distributed.fsdp import fully_shard
init()
model = GPT(tie=True)
if world > 1:
    state = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.device("meta"):
        model = GPT(tie=True)
    model.to_empty(device="cpu")
    model.head.weight = nn.Parameter(torch.empty(V, D))  # what to_empty under fully_shard leaves: two parameters
    model.load_state_dict(state)
    for b in model.blocks:
        fully_shard(b)
    fully_shard(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    x, y = mine(x, y)
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
