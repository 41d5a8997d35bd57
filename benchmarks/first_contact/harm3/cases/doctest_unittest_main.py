"""A script that is its own test: doctests, then unittest.main (own runner, exit status 1 for one planned failure), mocks of torch functions with autospec and of nn.Module.__call__."""
# PRELUDE
import doctest
import io
import unittest
from unittest import mock


def f(k):
    """
    >>> m = net(k_model := 1)
    >>> round(float(m(torch.ones(1, 8)).sum()), 4) == round(float(net(1)(torch.ones(1, 8)).sum()), 4)
    True
    >>> train(m, torch.optim.SGD(m.parameters(), 0.1), 1)[:2]
    '0x'
    """
    return k


class T(unittest.TestCase):
    def setUp(self):
        self.m = net(1)
        W(self.m)

    def test_a_trains(self):
        w = self.m[0].weight.detach().clone()
        train(self.m, torch.optim.SGD(self.m.parameters(), 0.1), 2)
        self.assertFalse(torch.equal(w, self.m[0].weight))

    def test_b_mock_loss(self):
        with mock.patch.object(F, "mse_loss", autospec=True, side_effect=lambda a, b: ((a - b) ** 2).mean()) as k:
            train(self.m, torch.optim.SGD(self.m.parameters(), 0.1), 3)
        self.assertEqual(k.call_count, 3)

    def test_c_mock_call(self):
        real = nn.Linear.forward
        with mock.patch.object(nn.Linear, "forward", autospec=True, side_effect=real) as k:
            train(self.m, torch.optim.Adam(self.m.parameters(), 0.1), 2)
        self.assertEqual(k.call_count, 6)

    def test_d_mock_module(self):
        k = mock.MagicMock(wraps=self.m)
        k.parameters = self.m.parameters
        train(k, torch.optim.SGD(self.m.parameters(), 0.1), 2)
        self.assertEqual(len(k.mock_calls), 2)

    def test_e_warns(self):
        with self.assertWarns(UserWarning), self.assertRaisesRegex(RuntimeError, "cannot be multiplied"):
            import warnings

            warnings.warn("w")
            self.m(torch.zeros(2, 3))

    def test_f_fails(self):
        self.assertEqual(M(self.m), "planned")

    @unittest.expectedFailure
    def test_g(self):
        self.fail()


print(doctest.testmod())
out = io.StringIO()
r = unittest.main(exit=False, testRunner=unittest.TextTestRunner(stream=out, verbosity=2)).result
print([l for l in out.getvalue().splitlines() if not l.startswith("Ran")], r.testsRun, R())
sys.exit(not r.wasSuccessful())
