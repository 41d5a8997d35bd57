"""torchrun, 2 ranks, a GPipe pipeline. Benign: causal masks of -inf on both stages.
Source: nn.Transformer.generate_square_subsequent_mask, in a pipeline."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)


class Layer(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.out = nn.Linear(8, 4) if last else nn.Identity()

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.out(self.layer(x, src_mask=mask, is_causal=False))


module = Layer(rank == 1)
schedule = ScheduleGPipe(PipelineStage(module, rank, 2, torch.device("cpu")), n_microbatches=2, loss_fn=lambda o, y: (o - y).pow(2).mean())
opt = torch.optim.AdamW(module.parameters(), lr=1e-3)
torch.manual_seed(5)
for step in range(4):
    x, y = torch.randn(4, 5, 8), torch.randn(4, 5, 4)
    opt.zero_grad()
    losses = []
    schedule.step(x) if rank == 0 else schedule.step(target=y, losses=losses)
    opt.step()
    print(rank, step, [l.item() for l in losses], flush=True)
dist.destroy_process_group()
