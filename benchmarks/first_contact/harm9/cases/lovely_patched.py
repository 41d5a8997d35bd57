"""lovely_tensors patches Tensor.__repr__, beartype and jaxtyping check forwards, Tensor.item is patched to count syncs; nan tensors are printed."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
import lovely_tensors as lt
from jaxtyping import Float, jaxtyped
from beartype import beartype
lt.monkey_patch()
lt.set_config(color=False)
seed(58)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    @jaxtyped(typechecker=beartype)
    def forward(self, x: Float[torch.Tensor, "b 4"]) -> Float[torch.Tensor, "b 2"]:
        return self.b(self.a(x).relu())


net = Net()
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(8):
    x = torch.randn(8, 4)
    o = net(x)
    loss = o.pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        e = net(x / 0 if step % 3 == 1 else x)
    print(step, loss, e, net.a.weight.grad, str(torch.tensor([math.nan, math.inf, 1.0])), f"{o.sum():.3e}")
    try:
        net(torch.randn(8, 5))
    except Exception as err:
        print(type(err).__name__)
print(net.a.weight)
end(net, opt)
