"""A script in latin-1 with a cookie, CRLF line ends and a shebang, and one with a BOM, text outside ASCII, line numbers of its warnings and the source in its traceback; status 1."""
# PRELUDE
import inspect
import warnings


class Nét(nn.Module):
    """Réseau à couches."""

    def __init__(self):
        super().__init__()
        self.body = net(1)

    def forward(self, x):
        return self.body(x)


m = Nét()
print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), M(m))
print(inspect.getsource(Nét).splitlines()[0].encode("unicode_escape"), inspect.getsourcelines(Nét)[1], Nét.__doc__.encode("unicode_escape"))
warnings.warn("avertissement")
x = "é" + 1
