"""``nvdlfw_inspect`` by its own names: put ``numscope.compat.`` before it in a script's imports."""

from numscope.compat.nvdlfw_inspect.api import (
    end_debug,
    explain_features,
    get_tensor_reduction_group,
    infer_and_assign_layer_names,
    initialize,
    initialize_training_step,
    list_features,
    log_message,
    log_tensor_stats,
    set_tensor_reduction_group,
    step,
)

__all__ = [
    "end_debug",
    "explain_features",
    "get_tensor_reduction_group",
    "infer_and_assign_layer_names",
    "initialize",
    "initialize_training_step",
    "list_features",
    "log_message",
    "log_tensor_stats",
    "set_tensor_reduction_group",
    "step",
]
