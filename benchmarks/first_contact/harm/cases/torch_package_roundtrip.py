r"""torch.package of a model in training with its source, loaded again; trace_dependencies; the archive's listing.

source: pytorch/pytorch#191839, pytorch/pytorch PR 191997
"""
import torch
from torch.package import PackageExporter, PackageImporter
from torch.package.analyze.trace_dependencies import trace_dependencies

with open("nets.py", "w") as f:
    f.write("import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.l = torch.nn.Linear(8, 4)\n    def forward(self, x):\n        return self.l(x).tanh()\n")
import nets
from fcw import rng, say, seed, sha, train, watch, weights

seed(304)
net = nets.Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
say(train(net, opt, 3))
with PackageExporter("net.pkg") as e:
    e.extern(["torch.**", "sys"])
    e.intern("nets")
    e.save_pickle("m", "net.pkl", net)
    e.save_pickle("m", "opt.pkl", opt.state_dict())
importer = PackageImporter("net.pkg")
again = importer.load_pickle("m", "net.pkl")
watch(again)
say(sha(weights(again)) == sha(weights(net)), str(importer.file_structure()).count("\n"), type(again).__module__.split(".", 1)[-1])
mods = trace_dependencies(net, [(torch.ones(1, 8),)])
say(sorted(m for m in mods if not m.startswith(("torch", "importlib", "<")))[:20])
say(train(again, torch.optim.SGD(again.parameters(), 0.1), 2), train(net, opt, 2), rng())
