"""Own optimizer (orthogonalized momentum), a training object, a folder of parts. --lose momentum | order | cast | buffers | older"""
import hashlib, json, os, sys
from pathlib import Path

import torch
from torch import nn

lose = sys.argv[sys.argv.index("--lose") + 1] if "--lose" in sys.argv else ""
END, EVERY = int(os.environ.get("END", "100")), 5


class Muonish(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                m = state.setdefault("buf", torch.zeros_like(p))
                m.mul_(group["beta"]).add_(p.grad)
                u = m / (m.norm() + 1e-7) if p.ndim < 2 else self.orthogonal(m)
                p.add_(u, alpha=-group["lr"])

    @staticmethod
    def orthogonal(m):
        x = m / (m.norm() + 1e-7)
        for _ in range(3):
            x = 1.5 * x - 0.5 * x @ x.mT @ x
        return x


class Job:
    def __init__(self):
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.SiLU(), nn.Linear(24, 24), nn.SiLU(), nn.Linear(24, 24), nn.SiLU(), nn.Linear(24, 3))
        self.done = 0
        weights = [p for p in self.net.parameters()]
        found = sorted(Path(".").glob("part-*"), key=lambda f: int(f.name[5:]))
        if lose == "order" and found:  # built from a set in another order
            weights[4], weights[6] = weights[6], weights[4]
            weights[5], weights[7] = weights[7], weights[5]
        self.opt = Muonish(weights)
        if found:
            self.load(found[-2] if lose == "older" and len(found) > 1 else found[-1], found[-1])

    def load(self, folder, newest):
        parts = torch.load(folder / "net.pt")
        if lose == "cast":
            parts = {k: v.bfloat16().float() if v.is_floating_point() else v for k, v in parts.items()}
        self.net.load_state_dict(parts, strict=lose != "buffers")
        if lose != "momentum":
            self.opt.load_state_dict(torch.load(folder / "opt.pt"))
        self.done = json.loads((newest / "where.json").read_text())["done"]

    def save(self):
        folder = Path(f"part-{self.done}")
        folder.mkdir(exist_ok=True)
        net = dict(self.net.named_parameters()) if lose == "buffers" else self.net.state_dict()
        torch.save({k: v.detach() for k, v in net.items()}, folder / "net.pt")
        torch.save(self.opt.state_dict(), folder / "opt.pt")
        (folder / "where.json").write_text(json.dumps({"done": self.done}))

    def run(self):
        while self.done < END:
            g = torch.Generator().manual_seed(self.done)
            x = torch.randn(16, 12, generator=g)
            loss = nn.functional.cross_entropy(self.net(x), x[:, :3].argmax(1))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.done += 1
            sha = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in self.net.parameters())).hexdigest()[:10]
            print(f"r0 step {self.done} loss {loss.item():.7f} {sha}", flush=True)
            if self.done % EVERY == 0:
                self.save()


Job().run()
