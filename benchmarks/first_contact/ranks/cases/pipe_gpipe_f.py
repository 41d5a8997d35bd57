# torch.distributed.pipelining, with a fault: stage 1 (rank 1) divides by a standard deviation that is zero, in one step
from fcutil import *
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
dist.init_process_group("gloo"); r = dist.get_rank()
class Part(nn.Module):
    def __init__(self, names, first, last):
        super().__init__()
        self.emb = nn.Embedding(50, 16) if first else None
        self.layers = nn.ModuleDict({n: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for n in names})
        self.norm = nn.LayerNorm(16) if last else None; self.output = nn.Linear(16, 50) if last else None
    def forward(self, h):
        h = self.emb(h) if self.emb is not None else h
        for l in self.layers.values(): h = l(h)
        if self.norm is not None:
            h = self.norm(h)
            if step == 3: h = h / (h.std() * 0) # FAULT
            h = self.output(h)
        return h
torch.manual_seed(r); part = Part(["0", "1"] if r == 0 else ["2", "3"], r == 0, r == 1)
stage = PipelineStage(part, r, 2, torch.device("cpu"))
def token_loss(o, t): return F.cross_entropy(o.flatten(0, 1), t.flatten())
sched = ScheduleGPipe(stage, 4, loss_fn=token_loss); opt = torch.optim.AdamW(part.parameters(), 1e-3)
g = torch.Generator().manual_seed(7)
for step in range(6):
    x, y = torch.randint(0, 50, (8, 6), generator=g), torch.randint(0, 50, (8, 6), generator=g)
    opt.zero_grad()
    if r == 0: sched.step(x)
    else:
        losses = []; out = sched.step(target=y, losses=losses)
        truth(step, "output", "output", out)
        say("step", step, [l.item() for l in losses], digest(out))
    if r == 0: truth(step, "emb", "wgrad", part.emb.weight.grad)
    opt.step()
say("rank", r, digest(part.state_dict())); dist.destroy_process_group()
