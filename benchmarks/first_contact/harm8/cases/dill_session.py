# what: dill.dump_module / cloudpickle / joblib.hash of a model, optimizer and closures of __main__ during training; loaded in a child that goes on
# cmp: status stdout left
# PRELUDE
import dill, cloudpickle, joblib, subprocess, hashlib, pickle
class Net(nn.Module):
    def __init__(self): super().__init__(); self.f = net(); self.act = lambda t: t * 2
    def forward(self, x): return self.act(self.f(x))
model = Net(); W(model); opt = torch.optim.Adam(model.parameters(), lr=.01); sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: .9 ** e)
for e in range(2):
    print(train(model, opt, 3, 3 * e)); sched.step()
    print(len(dill.dumps(model)), len(cloudpickle.dumps(model.f)), len(joblib.hash(model.f)), len(pickle.dumps(opt)), len(cloudpickle.dumps(sched)))
m2, o2 = pickle.loads(cloudpickle.dumps((model, opt))); print(train(m2, o2, 2, 9), train(model, opt, 2, 9), M(model) == M(m2), R())
with open("m.dill", "wb") as f: dill.dump((model.f, opt.state_dict()), f, recurse=True)
print(subprocess.run([sys.executable, "-c", "import dill,torch; m,o=dill.load(open('m.dill','rb')); print(float(m(torch.ones(1,8)).sum()).hex(), len(m._forward_hooks), len(m._forward_pre_hooks))"], capture_output=True, text=True).stdout)
