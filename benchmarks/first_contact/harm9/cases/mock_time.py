"""Unit tests of a trainer: time, open, print and the optimizer are mocked, with exact counts of calls."""
# PRELUDE
import time, builtins, unittest
from unittest import mock
seed(14)


class Trainer:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        watch(self.net)
        self.opt = torch.optim.SGD(self.net.parameters(), 0.1)

    def fit(self, n, bad=False):
        began, losses = time.time(), []
        for i in range(n):
            loss = self.net(torch.randn(8, 4)).pow(2).mean()
            self.opt.zero_grad(); loss.backward(); self.opt.step()
            losses.append(loss.item())
            if bad:
                with torch.no_grad():
                    self.net(torch.full((1, 4), float("inf")) * 0)
            print(f"{i} {time.time() - began:.1f} {time.perf_counter()} {time.monotonic()}")
        torch.save(self.net.state_dict(), "w.pt")
        return losses


class T(unittest.TestCase):
    def test_times(self):
        t = Trainer()
        with mock.patch("time.time", side_effect=[float(i) for i in range(7)]) as clock, mock.patch("time.perf_counter", side_effect=range(6)) as pc, \
                mock.patch("time.monotonic", side_effect=range(6)), mock.patch("torch.save") as save:
            losses = t.fit(6, bad=True)
        self.assertEqual(clock.call_count, 7)
        self.assertEqual(pc.call_count, 6)
        save.assert_called_once()
        sys.stdout.write(dig(losses) + "\n")

    def test_steps(self):
        t = Trainer()
        with mock.patch.object(t.opt, "step", wraps=t.opt.step) as s, mock.patch.object(t.net, "forward", wraps=t.net.forward) as f, \
                mock.patch("builtins.print") as p:
            losses = t.fit(5)
        sys.stdout.write(f"{s.call_count} {f.call_count} {p.call_count} {dig(losses)}\n")

    def test_no_files(self):
        t = Trainer()
        with mock.patch("builtins.open", side_effect=AssertionError("no file")), mock.patch("os.fork", side_effect=AssertionError("no fork")), \
                mock.patch("torch.save"), mock.patch("builtins.print"), mock.patch("time.sleep", side_effect=AssertionError("no sleep")):
            sys.stdout.write(dig(t.fit(4, bad=True)[-1] is not None) + "\n")


r = unittest.main(exit=False, verbosity=0, argv=["case"]) if False else unittest.TextTestRunner(stream=open(os.devnull, "w")).run(
    unittest.defaultTestLoader.loadTestsFromTestCase(T))
print(r.testsRun, len(r.failures), len(r.errors), [str(e[1]).splitlines()[-1] for e in r.errors + r.failures])
print("rng", rngs())
