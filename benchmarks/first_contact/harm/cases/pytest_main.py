"""pytest.main inside a script with capture, a fixture and a parametrized training test; its exit code is the script's.

source: pytest-dev/pytest#1155
meta: {"compare": ["status", "files", "left", "tmp"], "expect_status": [1], "ignore": [".pytest_cache", ".pytest_cache/*"]}
"""
import sys

try:
    import pytest
except ImportError:
    pytest = None
import torch
from fcw import mlp, seed, sha, train, watch, weights

TEST = '''
import pytest, torch
from fcw import mlp, seed, sha, train, watch, weights

@pytest.fixture(params=[1, 2])
def model(request):
    seed(request.param)
    m = mlp()
    watch(m)
    return m

def test_train(model, capsys):
    said = train(model, torch.optim.SGD(model.parameters(), 0.1), 3)
    print(said)
    assert capsys.readouterr().out.strip() == str(said)
    open(f"{sha(weights(model))}.txt", "w").write(str(said))

def test_fails(model):
    assert train(model, torch.optim.SGD(model.parameters(), 0.1), 1) == []
'''
open("test_it.py", "w").write(TEST)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "test_it.py"]) if pytest else 1)
