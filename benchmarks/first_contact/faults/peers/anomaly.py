"""python peers/anomaly.py CASE [ARGS]: the case under torch.autograd's anomaly mode."""
import runpy
import sys
import torch

sys.argv = sys.argv[1:]
torch.autograd.set_detect_anomaly(True)
import warnings
warnings.simplefilter = lambda *a, **k: None  # its forward traceback is a warning, which some cases silence
runpy.run_path(sys.argv[0], run_name="__main__")
