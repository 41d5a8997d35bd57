# fault in the optimizer of rank 2 of three: Adam with eps=0 and a bias whose gradient is exactly zero (0/0); hand-averaged weights
from fcutil import *
dist.init_process_group("gloo"); r, w = dist.get_rank(), dist.get_world_size(); torch.manual_seed(0); net = MLP(); opt = torch.optim.Adam(net.parameters(), 1e-2, eps=0.0 if r == 2 else 1e-8)
for step in range(5):
    x, y = data(step, r); opt.zero_grad(); loss = F.mse_loss(net(x), y)
    loss.backward()
    if step == 0: net.fc2.bias.grad.zero_()
    opt.step() # FAULT
    if step % 2:
        for p in net.parameters(): dist.all_reduce(p.data); p.data /= w
    say("rank", r, step, loss.item())
dist.destroy_process_group()
