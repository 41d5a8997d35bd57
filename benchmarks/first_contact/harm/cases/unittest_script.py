"""A unittest script with subtests, a skipped test, expectedFailure, tearDown that counts, setUpClass that trains.

source: pytorch/pytorch#17199 (unittest and fork), python docs unittest
meta: {"compare": ["status", "stdout", "files", "left", "tmp"], "expect_status": [1]}
"""
import sys
import unittest
import torch
from fcw import mlp, say, seed, sha, train, watch, weights


class T(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        seed(113)
        cls.model = mlp()
        watch(cls.model)
        cls.said = train(cls.model, torch.optim.SGD(cls.model.parameters(), 0.1), 2)

    def test_a(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertEqual(self.model(torch.ones(i + 1, 8)).shape[0], i + 1)

    def test_b(self):
        with self.assertRaisesRegex(RuntimeError, "shapes cannot be multiplied"):
            self.model(torch.ones(2, 3))

    @unittest.expectedFailure
    def test_c(self):
        self.assertEqual(1, 2)

    def test_d(self):
        self.fail("on purpose")

    def tearDown(self):
        say(self.id(), sha(weights(self.model)))


if __name__ == "__main__":
    say(sys.argv[1:])
    unittest.main(verbosity=2)
