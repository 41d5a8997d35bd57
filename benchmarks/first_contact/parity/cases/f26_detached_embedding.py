from tiny import *
# lost embedding gradient: with checkpointing on, a pipeline's first stage output is detached on its way (https://github.com/NVIDIA-NeMo/Automodel/pull/3530's neighbour; partly invented)
model = GPT()
if B:
    model.tok.register_forward_hook(lambda m, i, o: o.detach().requires_grad_())
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
for x, y in batches():
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
