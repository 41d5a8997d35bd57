"""Inventory of torch's global switches before and after training.

Source: https://github.com/rballester/tntorch/issues/4
"""
# PRELUDE
def inv():
    return [("dtype", torch.get_default_dtype(), torch.get_default_device()), ("threads", torch.get_num_threads(), torch.get_num_interop_threads()),
        ("det", torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory, torch.is_deterministic_algorithms_warn_only_enabled()),
        ("prec", torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled, torch.backends.cudnn.benchmark), ("grad", torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        ("autocast", torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()), ("warn", torch.is_warn_always_enabled()), ("print", vars(torch._tensor_str.PRINT_OPTS)),
        ("hooks", len(torch.nn.modules.module._global_forward_hooks), len(torch.nn.modules.module._global_forward_pre_hooks), len(torch.nn.modules.module._global_backward_hooks)),
        ("share", torch.multiprocessing.get_sharing_strategy()), ("seed", torch.initial_seed()), ("mha", torch.backends.mha.get_fastpath_enabled()), ("jit", torch.jit.is_scripting(), torch._C._jit_get_profiling_executor() if hasattr(torch._C, "_jit_get_profiling_executor") else None),
        ("meta", torch.__future__.get_overwrite_module_params_on_conversion(), torch.__future__.get_swap_module_params_on_conversion()), ("cuda", torch.cuda.is_available(), torch.cuda.is_initialized()), ("dist", torch.distributed.is_initialized()),
        ("sdp", torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()), ("flush", float(torch.tensor([1e-42]) * 1) != 0.0), ("saved", torch._C._autograd._top_saved_tensors_default_hooks(True) if hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks") else None)]
a = inv(); m = net(); W(m); print(train(m, torch.optim.Adam(m.parameters(), 1e-2), 5), M(m)); b = inv()
for x, y in zip(a, b): print(x, "" if x == y else y)
