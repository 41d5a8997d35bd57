from tiny import *
# https://github.com/NVIDIA/Megatron-LM/issues/1446, https://github.com/EleutherAI/gpt-neox/pull/1257: norms see each rank's part of
# the sequence, and nobody reduces their weights' gradients
init()
class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.chunk(world, 1)[rank].contiguous()
    @staticmethod
    def backward(ctx, g):
        out = [torch.empty_like(g) for _ in range(world)]; dist.all_gather(out, g.contiguous()); return torch.cat(out, 1)
class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.empty_like(x) for _ in range(world)]; dist.all_gather(out, x.contiguous()); return torch.cat(out, 1)
    @staticmethod
    def backward(ctx, g): return g.chunk(world, 1)[rank].contiguous()
class SPNorm(nn.LayerNorm):
    def forward(self, x):
        return Gather.apply(super().forward(Scatter.apply(x))) if world > 1 else super().forward(x)
model = GPT()
for b in model.blocks:
    b.norm1, b.norm2 = SPNorm(D), SPNorm(D)
model.norm = SPNorm(D)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
