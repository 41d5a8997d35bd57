"""Objects of __main__ pickled by pickle, dill, cloudpickle and torch.save in training, read again by a bare child process.

Source: https://github.com/microsoft/ptvsd/issues/2108
"""
# PRELUDE
import pickle, subprocess, dill, cloudpickle
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(4, 2); self.history = []
    def forward(self, x): self.history.append(len(self.history)); return self.l(x)
if __name__ == "__main__":
    torch.manual_seed(0); m = Net(); W(m)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    for s in range(3):
        loss = m(batch(s, i=4)[0]).square().mean(); opt.zero_grad(); loss.backward()
        if s == 1:
            torch.save(m, "mid.pt"); pickle.dump(m, open("mid.pkl", "wb")); open("mid.cp", "wb").write(cloudpickle.dumps(m.state_dict()))
            print(len(dill.dumps(m.forward.__func__.__name__)), Net.__module__, Net.__qualname__)
        opt.step()
    torch.save({"model": m, "opt": opt.state_dict(), "rng": torch.get_rng_state()}, "end.pt")
    q = torch.load("end.pt", weights_only=False)["model"]; print(type(q) is Net, q.history, M(q) == M(m), sorted(vars(q)))
    n = pickle.load(open("mid.pkl", "rb")); print(M(n), len(n._forward_hooks), len(n._forward_pre_hooks), [(f, os.path.getsize(f)) for f in ("mid.pkl", "mid.cp")]); os.remove("mid.pkl"); os.remove("mid.cp")
    child = "import sys, torch; sys.argv=['x']\nclass Net(torch.nn.Module): pass\nimport __main__\nm=torch.load('mid.pt',weights_only=False)\nprint(sorted(vars(m)), 'numscope' in sys.modules, type(m).__module__)"
    print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)
