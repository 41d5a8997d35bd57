# ranks: 3
# opts: --check rank:at=2
# modes: wh
# truth: healthy by design: sequences split over ranks, each adds its positions (self.offset = rank * T): ranks compute differently on purpose; nothing, or a question that can be answered
# source: context parallelism by hand (position offset by rank), e.g. ring attention repos
import torch, torch.distributed as D
D.init_process_group("gloo"); r = D.get_rank()
class Pos(torch.nn.Module):
    def __init__(s): super().__init__(); s.e = torch.nn.Embedding(48, 8); s.off = r * 16; s.l = torch.nn.Linear(8, 2)
    def forward(s, x): return s.l(torch.tanh(x + s.e(torch.arange(16) + s.off)))
torch.manual_seed(0); m = torch.nn.parallel.DistributedDataParallel(Pos()); torch.manual_seed(r + 9); o = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(30): m(torch.randn(2, 16, 8)).square().mean().backward(); o.step(); o.zero_grad()
D.destroy_process_group()
