"""python -m case with arguments by argparse, a YAML beside it, runpy of another script in the same process, and sys.exit with a text."""
# PRELUDE
import argparse, runpy
if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("rest", nargs="*")
    a = p.parse_args()
    print(a, p.prog, __package__, __spec__.name if __spec__ else None, sys.argv[1:])
    seed(43)
    open("inner.py", "w").write("import sys\nimport torch\nnet = torch.nn.Linear(3, 1)\nopt = torch.optim.SGD(net.parameters(), LR)\n"
                                "for _ in range(5):\n    l = net(torch.randn(4, 3)).pow(2).mean()\n    opt.zero_grad(); l.backward(); opt.step()\n"
                                "print(__name__, sys.argv, 'SystemExit next')\nresult = net.weight.detach()\nif LR > 0.5: sys.exit('too large')\n")
    g = runpy.run_path("inner.py", {"LR": a.lr}, "inner")
    print(dig(g["result"]))
    net = nn.Linear(3, 1)
    watch(net)
    opt = torch.optim.SGD(net.parameters(), a.lr)
    for step in range(6):
        loss = net(torch.randn(4, 3)).pow(2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
        print(dig(loss))
    end(net, opt)
    runpy.run_path("inner.py", {"LR": 0.9}, "inner")
