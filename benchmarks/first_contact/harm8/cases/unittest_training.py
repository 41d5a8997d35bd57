# what: unittest.main() in the script: tests that train, assertWarns, assertLogs (no logs), subTest, a nan expected, an expected failure; status 1
# benign: yes
# cmp: status stdout files left
# PRELUDE
import unittest, warnings, logging
class T(unittest.TestCase):
    def setUp(self): torch.manual_seed(0); self.m = net(); self.s = W(self.m); self.opt = torch.optim.SGD(self.m.parameters(), lr=.1)
    def test_a_train(self):
        with self.assertNoLogs(level="DEBUG"), warnings.catch_warnings(): warnings.simplefilter("error"); print(train(self.m, self.opt, 4), M(self.m))
    def test_b_nan(self):
        with self.assertNoLogs(), torch.no_grad(): train(self.m, self.opt, 2); self.assertTrue((self.m(batch(1)[0]) * float("nan")).isnan().all())
    def test_c_warn(self):
        with self.assertWarns(UserWarning) as w: F.mse_loss(self.m(batch(1)[0]), torch.zeros(1, 4))
        print(os.path.basename(w.filename), str(w.warning)[:40])
    def test_d_error(self):
        with self.assertRaisesRegex(RuntimeError, "shapes cannot"): self.m(torch.ones(1, 3))
    @unittest.expectedFailure
    def test_e(self): self.assertEqual(1, 2)
    def test_f_fail(self): self.assertTrue(self.m(torch.full((1, 8), float("inf"))).isfinite().all())
unittest.main(testRunner=unittest.TextTestRunner(stream=open("/dev/null", "w")), argv=["x"])
