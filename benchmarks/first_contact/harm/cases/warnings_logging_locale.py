"""Warning filters, logging's root, handlers and levels, locale, numpy's and torch's print options, decimal context, float errors.

source: mlc-ai/xgrammar#534, zadorlab/PySIDT#44, customerio/customerio-python PR 33
"""
import decimal
import locale
import logging
import os
import sys
import warnings
import numpy as np
import torch
from fcw import mlp, say, seed, train, watch


def facts():
    say([(f[0], f[2].__name__, f[1] and f[1].pattern, f[4]) for f in warnings.filters])
    root = logging.getLogger()
    say(root.level, root.handlers, logging.lastResort is not None, logging.raiseExceptions, logging.getLoggerClass().__name__, logging.root.manager.disable, logging.getLogger("torch").level)
    say(locale.setlocale(locale.LC_ALL), np.get_printoptions()["precision"], np.geterr(), torch._tensor_str.PRINT_OPTS, decimal.getcontext().prec)
    say(torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(), torch.get_default_device())
    say(torch.backends.mkldnn.enabled, torch.get_num_threads(), torch.backends.cpu.get_cpu_capability(), torch._C._get_deterministic_fill_uninitialized_memory() if hasattr(torch._C, "_get_deterministic_fill_uninitialized_memory") else "", torch.is_warn_always_enabled())
    say(os.umask(0o022), warnings.showwarning.__module__, warnings.formatwarning.__module__, sys.warnoptions)


facts()
seed(106)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
train(model, opt, 3)
facts()
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(message)s")
warnings.simplefilter("error")
locale.setlocale(locale.LC_ALL, "C")
torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)
np.seterr(all="raise")
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 30)[-1])
logging.info("mine")
facts()
