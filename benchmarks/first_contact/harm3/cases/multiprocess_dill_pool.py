"""The multiprocess package (a fork of multiprocessing that pickles by dill) runs lambdas and closures over a trained model in a pool; results and order."""
# PRELUDE
import multiprocess as mps

if __name__ == "__main__":
    m = net(1)
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    print(train(m, opt, 3))
    k = 2.0

    def job(s):
        with torch.no_grad():
            return H(m(batch(s)[0]) * k)

    with mps.get_context("fork").Pool(2) as p:
        print(p.map(job, range(4)), p.map(lambda s: (s, train(net(s), torch.optim.SGD(net(s).parameters(), 0.1), 1)), range(2)))
    print(train(m, opt, 2), M(m), R())
