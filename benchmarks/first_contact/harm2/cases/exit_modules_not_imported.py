"""A plain script without optimizer: heavy parts of torch and the standard library that bare never imports (dynamo, inductor, sympy, distributed) stay out of sys.modules; children forked later stay small.

Source: https://github.com/pytorch/pytorch/issues/102269 (what an import changes for multiprocessing)
"""
# PRELUDE
m = net(); x, y = batch(0); F.mse_loss(m(x), y).backward(); print(M(m))
print([k for k in ("torch._dynamo", "torch._inductor", "sympy", "torch.onnx", "pandas", "matplotlib", "IPython", "tensorflow", "transformers") if k in sys.modules])
