"""Operators of the script's own (custom_op with autograd and fake, Library with CPU kernels, a mutating one) in a model; opcheck; compile.

Source: https://docs.pytorch.org/docs/stable/library.html
"""
# PRELUDE
from torch.library import custom_op, Library, impl
calls = []
@custom_op("mine::scale", mutates_args=())
def scale(x: torch.Tensor, k: float) -> torch.Tensor: calls.append("fwd"); return torch.from_numpy(x.detach().numpy() * np.float32(k))
@scale.register_fake
def _(x, k): return torch.empty_like(x)
scale.register_autograd(lambda ctx, g: (calls.append("bwd") or g * ctx.k, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1]))
@custom_op("mine::add_one_", mutates_args={"x"})
def add_one_(x: torch.Tensor) -> None: x.numpy()[...] += 1; calls.append("mut")
lib = Library("mine2", "DEF"); lib.define("twice(Tensor x) -> Tensor"); lib.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4); self.register_buffer("n", torch.zeros(2))
    def forward(self, x): torch.ops.mine.add_one_(self.n); return torch.ops.mine2.twice(scale(self.l(x), 0.7))
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 3), calls, m.n.tolist(), M(m)); calls.clear()
print(torch.library.opcheck(scale, (torch.ones(3, requires_grad=True), 2.0), test_utils=("test_schema", "test_autograd_registration"))); c = torch.compile(lambda x: scale(x, 3.0) + 1, backend="aot_eager", fullgraph=True); print(c(torch.ones(2)).tolist())
