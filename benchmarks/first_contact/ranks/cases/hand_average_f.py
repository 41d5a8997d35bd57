# dist_tuto with a fault: at step 5 rank 1 takes the logarithm of probabilities that are zero
from fcutil import *
from torch.multiprocessing import Process
from torch.utils.data import DataLoader, TensorDataset
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3); self.drop = nn.Dropout2d(0.2); self.fc1 = nn.Linear(4 * 9, 20); self.fc2 = nn.Linear(20, 5)
    def forward(self, x):
        x = F.relu(F.max_pool2d(self.drop(self.conv(x)), 2)).flatten(1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), 1)
def average_gradients(model, w):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad /= w
def run(r, w):
    torch.manual_seed(1234)
    xs, ys = torch.randn(96, 1, 8, 8), torch.randint(0, 5, (96,))
    loader = DataLoader(TensorDataset(xs[r::w], ys[r::w]), batch_size=8, shuffle=True, num_workers=1)
    net = Net(); opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.5)
    torch.manual_seed(r)
    step = 0
    for epoch in range(2):
        total = 0.0
        for x, y in loader:
            opt.zero_grad()
            loss = F.nll_loss(net(x), y)
            if r == 1 and step == 5:
                loss = loss + torch.log(F.relu(xs[0].mean() * 0 - net.fc2.bias.square().sum())) # FAULT
            total += loss.item(); loss.backward()
            average_gradients(net, w)
            truth(step, "fc1", "wgrad", net.fc1.weight.grad, "copy"); step += 1
            opt.step()
        say("rank", r, "epoch", epoch, total / len(loader), digest(net.state_dict()))
def init(r, w, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(r))
    dist.init_process_group("gloo", rank=r, world_size=w)
    run(r, w)
    dist.destroy_process_group()
if __name__ == "__main__":
    port = free_port()
    ps = [Process(target=init, args=(r, 2, port)) for r in range(2)]
    [p.start() for p in ps]; [p.join() for p in ps]
    say("exit", [p.exitcode for p in ps])
    sys.exit(max(p.exitcode for p in ps))
