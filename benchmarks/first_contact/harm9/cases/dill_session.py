"""dill saves and reloads the whole __main__, cloudpickle the model's class by value; joblib dumps the trainer; shelve holds results; bytes are compared."""
# PRELUDE
import dill, cloudpickle, joblib, shelve, io
seed(100)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 2)
        self.act = lambda x: x.tanh()

    def forward(self, x):
        return self.act(self.l(x))


class Trainer:
    def __init__(self, net):
        self.net, self.opt, self.hist = net, torch.optim.Adam(net.parameters(), 1e-2), []
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 3)

    def step(self):
        loss = self.net(torch.randn(8, 4)).pow(2).mean()
        self.opt.zero_grad(); loss.backward(); self.opt.step(); self.sched.step()
        self.hist.append(loss.item())


net = Net()
watch(net)
t = Trainer(net)
for i in range(6):
    t.step()
    b = dill.dumps(t, recurse=True)
    c = cloudpickle.dumps(net)
    print(i, dig(t.hist), len(b) > 1000, len(c))
u = dill.loads(b)
u.step(); t.step()
v = cloudpickle.loads(c)
print(dig(u.hist), dig(t.hist), dig(v(torch.ones(1, 4))))
plain = nn.Sequential(nn.Linear(4, 3))
watch(plain)
p = Trainer(plain)
for _ in range(3):
    p.step()
joblib.dump(p, "trainer.joblib")
q = joblib.load("trainer.joblib")
q.step()
with shelve.open("results") as s:
    s["hist"], s["w"] = p.hist, plain.state_dict()
print(sorted(shelve.open("results", "r")), dig(q.hist), len(open("trainer.joblib", "rb").read()) > 0)
for f in os.listdir("."):
    if f.startswith("results"):
        os.remove(f)
os.remove("trainer.joblib")
end(net, t.opt)
