"""joblib's loky processes train one model each (cloudpickle of functions of __main__); results.

Source: https://github.com/cloudpipe/cloudpickle/issues/381
"""
# PRELUDE
from joblib import Parallel, delayed
def work(k):
    n = net(k); return train(n, torch.optim.SGD(n.parameters(), 0.1), 3), M(n), work.__module__
if __name__ == "__main__":
    m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
    print(Parallel(n_jobs=2)(delayed(work)(k) for k in range(3))); print(Parallel(n_jobs=2, backend="threading")(delayed(lambda k: k * 2)(k) for k in range(3)))
    from joblib.externals.loky import get_reusable_executor; get_reusable_executor().shutdown(wait=True)
