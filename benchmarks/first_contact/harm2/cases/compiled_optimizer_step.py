"""A compiled optimizer step and compiled autograd-free helper (backend eager), with the schedule's lr as a tensor.

Source: https://docs.pytorch.org/tutorials/recipes/compiling_optimizer.html
"""
# PRELUDE
m = net(); opt = torch.optim.Adam(m.parameters(), lr=torch.tensor(1e-2), foreach=False)
@torch.compile(backend="aot_eager", fullgraph=False)
def step(): opt.step()
for s in range(4):
    x, y = batch(s); opt.zero_grad(); loss = F.mse_loss(m(x), y); loss.backward(); step(); opt.param_groups[0]["lr"].mul_(0.9); print(float(loss.detach()).hex())
print(M(m), H([list(v.values()) for v in opt.state.values()]))
