# a sweep: three ranks of torchrun without a process group, each its own architecture; rank 2 ends early by sys.exit(0), rank 0 saves
from fcutil import *
r = rank(); torch.manual_seed(r); net = MLP(8, 8 * (r + 1), 4)
opt = [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop][r](net.parameters(), 0.01)
for step in range(20):
    x, y = data(step, r); opt.zero_grad(); o = net(x); loss = F.mse_loss(o, y); loss.backward(); opt.step()
    if r == 2 and step == 6:
        say("rank 2 gives up", loss.item(), digest(net.state_dict())); sys.exit(0)
torch.save(net.state_dict(), f"m{r}.pt")
say("rank", r, loss.item(), digest(net.state_dict(), opt.state_dict()))
