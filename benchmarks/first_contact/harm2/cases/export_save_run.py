"""torch.export in the middle of a training: graph text, signature, saved program run again, dynamic shapes.

Source: https://github.com/pytorch/pytorch/issues/149605
"""
# PRELUDE
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4); self.register_buffer("n", torch.zeros(1))
    def forward(self, x): return self.b(torch.relu(self.a(x))) + self.n
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
e = torch.export.export(m, (batch(0)[0],), dynamic_shapes={"x": {0: torch.export.Dim("b", min=2)}}); print(e.graph_module.code, [str(s.kind) + str(s.target) for s in e.graph_signature.input_specs])
torch.export.save(e, "e.pt2"); q = torch.export.load("e.pt2"); print(H(q.module()(batch(1, 9)[0])), train(m, opt, 2), M(m)); os.remove("e.pt2")
d = e.run_decompositions(); print([n.name for n in d.graph.nodes])
