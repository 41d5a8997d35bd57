# rank 1 of three gets SIGTERM (from itself) while training; the launcher then ends all
from fcutil import *
import signal
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0); net = MLP(); opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(10):
    x, y = data(step, r); opt.zero_grad(); loss = F.mse_loss(net(x), y); loss.backward()
    for p in net.parameters(): dist.all_reduce(p.grad)
    opt.step(); say("rank", r, step, loss.item(), digest(net.state_dict()))
    if r == 1 and step == 6:
        os.kill(os.getpid(), signal.SIGTERM); time.sleep(3); say("never")
    dist.barrier()
