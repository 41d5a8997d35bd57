# with a fault: the critic's loss on rank 0 takes log(1 - sigmoid) of a saturated output in step 5; two DDP models (generator, discriminator) with static_graph, two optimizers, reentrant-free checkpointing in the generator
from fcutil import *
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0)
class G(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(4, 16); self.b = nn.Linear(16, 8)
    def forward(self, z): return self.b(checkpoint(lambda t: torch.relu(self.a(t)), z, use_reentrant=False))
class D(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 16); self.b = nn.Linear(16, 1)
    def forward(self, x): return self.b(F.leaky_relu(self.a(x)))
g, d = G(), D(); dg, dd = DDP(g, static_graph=True), DDP(d, static_graph=True)
og, od = torch.optim.Adam(g.parameters(), 1e-3), torch.optim.RMSprop(d.parameters(), 1e-3); torch.manual_seed(r + 1)
bce = F.binary_cross_entropy_with_logits
for step in range(8):
    real, z = torch.randn(8, 8) + 2, torch.randn(8, 4)
    od.zero_grad(); p = torch.cat([real, dg(z).detach()])
    o = dd(p); ld = bce(o, torch.cat([torch.ones(8, 1), torch.zeros(8, 1)]))
    if r == 0 and step == 5: ld = ld - torch.log(1 - torch.sigmoid(o.mean() * 0 + 200.0)) # FAULT
    ld.backward(); od.step()
    og.zero_grad(); lg = bce(d(dg(z)), torch.ones(8, 1)); lg.backward(); truth(step, "a", "wgrad", g.a.weight.grad, "copy"); og.step()
    say("rank", r, step, ld.item(), lg.item())
say("rank", r, digest(g.state_dict(), d.state_dict())); dist.destroy_process_group()
