"""The namespace that Transformer Engine registers with nvdlfw-inspect, as its documentation describes it.

Stands in for Transformer Engine, which needs a GPU to be installed: default answers, and routing by the tensor's name.
"""

from __future__ import annotations

import os
from typing import Any

from nvdlfw_inspect.base import BaseNamespaceAPI
from nvdlfw_inspect.registry import Registry

TELLS_NEXT = os.environ.get("TE_TELLS_NEXT", "1") == "1"  # newer versions answer with the next step too
SHOWING = ("inspect_tensor", "inspect_tensor_enabled")


class Defaults:
    def inspect_tensor_enabled(self, config: Any, layer_name: str, tensor_name: str, iteration: int) -> Any:
        return (False, None) if TELLS_NEXT else False

    def inspect_tensor(self, config: Any, layer_name: str, tensor_name: str, tensor: Any, iteration: int, tp_group: Any) -> None: ...


@Registry.register_namespace_api(namespace="transformer_engine")
class StandIn(BaseNamespaceAPI):
    def __init__(self) -> None:
        super().__init__()
        self._default_api_impl = Defaults()
        self._cacheable_api_kwargs_map = {name: ["tensor_name"] for name in SHOWING}

    def is_multiple_feature_invocation_allowed(self, api_name: str) -> bool:
        return api_name in SHOWING

    def input_assertions_hook(self, api_name: str, **kwargs: Any) -> None:
        assert "tensor_name" in kwargs

    def output_assertions_hook(self, api_name: str, ret: Any, **kwargs: Any) -> None:
        if api_name == "inspect_tensor_enabled":
            assert isinstance(ret, (bool, tuple) if TELLS_NEXT else bool)
        else:
            assert ret is None

    def routing_condition(self, api_name: str, config: Any, layer_name: str, feature_obj: Any, **kwargs: Any) -> Any:
        return feature_obj.parse_config_and_api(config, gemm_parsing=False, tensor_parsing=True, **kwargs)

    def handle_multi_feature_output(self, api_name: str, outputs: Any, features_to_invoke: Any, **kwargs: Any) -> Any:
        if api_name != "inspect_tensor_enabled":
            return None
        now = any(one[0] if isinstance(one, tuple) else one for one in outputs)
        return (now, None) if TELLS_NEXT else now
