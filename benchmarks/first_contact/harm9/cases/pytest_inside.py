"""pytest.main within the process: fixtures train models, warnings are errors, stdout and file descriptors are captured, a test for determinism and one that expects nan."""
# PRELUDE
import pytest
TEST = '''
import os, math, pytest, torch, warnings
from torch import nn
import torch.nn.functional as F

@pytest.fixture
def net():
    torch.manual_seed(0)
    n = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    if os.environ.get("FC_WATCH"):
        import numscope
        numscope.watch(n)
    return n

def fit(net, steps=5):
    opt = torch.optim.SGD(net.parameters(), 0.1)
    torch.manual_seed(1)
    for _ in range(steps):
        loss = F.cross_entropy(net(torch.randn(8, 4)), torch.randint(0, 2, (8,)))
        opt.zero_grad(); loss.backward(); opt.step()
    return loss

def test_same(net, record_property):
    a = fit(net).item()
    assert a == 0.7181298136711121 or a > 0

def test_no_warnings(net, recwarn):
    fit(net)
    net(torch.full((1, 4), math.nan))
    assert len(recwarn) == 0

def test_output(net, capfd):
    print("hello"); fit(net)
    with torch.no_grad():
        net(torch.full((1, 4), math.nan))
    out, err = capfd.readouterr()
    assert out == "hello\\n"

def test_caplog(net, caplog):
    caplog.set_level(0)
    fit(net)
    with torch.no_grad():
        net(torch.full((1, 4), math.nan))
    assert [r for r in caplog.records if not r.name.startswith("numscope")] == []

def test_logs_none(net, caplog):
    fit(net)
    with torch.no_grad():
        net(torch.full((1, 4), math.nan))
    assert caplog.text == ""

@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_loss(net, bad):
    out = net(torch.full((2, 4), bad))
    assert not torch.isfinite(out.sum())

def test_grad_nan(net):
    x = torch.zeros(2, 4, requires_grad=True)
    y = (net(x) * 0).pow(2).sum().sqrt()
    y.backward()
    assert torch.isnan(net[0].weight.grad).any() or True

def test_anomaly(net):
    with pytest.raises(RuntimeError, match="nan"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            (net(torch.zeros(2, 4)) * 0).pow(2).sum().sqrt().backward()

@pytest.mark.xfail(strict=True)
def test_xfail(net):
    assert fit(net) < 0
'''
if __name__ == "__main__":
    open("test_it.py", "w").write(TEST)

    class Collect:
        def pytest_runtest_logreport(self, report):
            if report.when == "call" or report.failed:
                rows.append((report.nodeid, report.outcome, str(report.longrepr)[-150:] if report.failed else ""))

    rows = []
    import io, contextlib
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "error", "test_it.py"], plugins=[Collect()])
    for r in rows:
        print(*r)
    print(int(code), rngs() if False else "")
    os.remove("test_it.py")
