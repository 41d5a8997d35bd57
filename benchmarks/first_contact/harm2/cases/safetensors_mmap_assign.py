"""Weights saved as safetensors, loaded with mmap, assign, meta device; files' bits; training on mapped memory.

Source: https://docs.pytorch.org/tutorials/recipes/recipes/module_load_state_dict_tips.html
"""
# PRELUDE
from safetensors.torch import load_file, save_file, save_model
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2)); save_file(m.state_dict(), "a.safetensors"); save_model(m, "b.safetensors"); torch.save(m.state_dict(), "c.pt")
with torch.device("meta"): k = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
W(k); k.load_state_dict(torch.load("c.pt", mmap=True), assign=True); print(train(k, torch.optim.SGD(k.parameters(), 0.1), 3), M(k))
k.load_state_dict(load_file("a.safetensors")); print(train(k, torch.optim.SGD(k.parameters(), 0.1), 2), M(k))
t = torch.from_file("raw.bin", shared=True, size=8 * 4, dtype=torch.float32).view(4, 8); t.copy_(torch.linspace(-1, 1, 32).view(4, 8))
l = nn.Linear(8, 4, bias=False); l.weight = nn.Parameter(t); W(l); print(train(l, torch.optim.SGD(l.parameters(), 0.1), 4), H(t)); del t, l
