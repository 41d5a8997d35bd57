# sequence parallel on two ranks: at step 4 rank 1's shard of the input is divided by its minimum after ReLU, zero
from fcutil import *
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cpu", (2,)); r = mesh.get_rank()
class Toy(nn.Module):
    def __init__(self):
        super().__init__(); self.in_proj = nn.Linear(10, 32); self.relu = nn.ReLU(); self.out_proj = nn.Linear(32, 5)
    def forward(self, x):
        return self.out_proj(self.relu(self.in_proj(x)))
torch.manual_seed(0)
net = parallelize_module(Toy(), mesh, {"in_proj": ColwiseParallel(input_layouts=Shard(0)), "out_proj": RowwiseParallel(output_layouts=Shard(0))})
opt = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=True)
for step in range(8):
    x, _ = data(step, r, 20, 10); opt.zero_grad()
    if r == 1 and step == 4:
        x = x / x.relu().amin() # FAULT
    out = net(x); out.square().mean().backward()
    truth(step, "in_proj", "wgrad", net.in_proj.weight.grad); truth(step, "out_proj", "output", out); truth(step, "in_proj", "weight", net.in_proj.weight)
    opt.step()
    say("rank", r, step, out.sum().item())
say("rank", r, digest(net.state_dict())); dist.destroy_process_group()
