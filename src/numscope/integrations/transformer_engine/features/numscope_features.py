"""Features that nvdlfw-inspect offers to Transformer Engine's modules; it executes this file when it is initialized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nvdlfw_inspect.api as debug_api
from nvdlfw_inspect.base import BaseConfigAPIMapper, BaseNamespaceAPI
from nvdlfw_inspect.config_manager import ConfigManager
from nvdlfw_inspect.logging import BaseLogger, MetricLogger, get_logger
from nvdlfw_inspect.registry import Registry, api_method

from numscope.integrations.transformer_engine import collecting
from numscope.integrations.transformer_engine.collecting import FeatureSettings

NAMESPACE = "transformer_engine"


class _TheirLoggers(BaseLogger):  # type: ignore[misc]  # nvdlfw-inspect is not read by the type checker
    """Hands statistics to whatever loggers nvdlfw-inspect has."""

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        MetricLogger.log_scalar(name, value, iteration, **kwargs)


@Registry.register_namespace_api(namespace="numscope")
class NumscopeAPI(BaseNamespaceAPI):  # type: ignore[misc]
    """A namespace without features, through which nvdlfw-inspect reports steps and the end."""

    def __init__(self) -> None:
        super().__init__()
        collecting.begin(get_logger().root_log_dir, _TheirLoggers())

    def step(self) -> None:
        """Called by ``nvdlfw_inspect.api.step``, which has counted the step already."""
        group = debug_api.get_tensor_reduction_group()
        step = debug_api.DEBUG_MANAGER._trainer_iteration_count - 1
        collecting.at_work().step(group if group is not None and _collects_at(step) else None)

    def end_debug(self) -> None:
        """Called by ``nvdlfw_inspect.api.end_debug``."""
        collecting.end()

    def input_assertions_hook(self, api_name: str, **kwargs: Any) -> None: ...

    def output_assertions_hook(self, api_name: str, ret: Any, **kwargs: Any) -> None: ...

    def routing_condition(self, api_name: str, config: Any, layer_name: str, feature_obj: Any, **kwargs: Any) -> tuple[bool, None]:
        return False, None

    def is_multiple_feature_invocation_allowed(self, api_name: str) -> bool:
        return False


class _Feature(BaseConfigAPIMapper):  # type: ignore[misc]
    """The base of both features: the calls that show tensors in high precision, and their schedule."""

    alarm = False

    def parse_config_and_api(self, config: Mapping[str, Any], **kwargs: Any) -> tuple[bool, dict[str, Any] | None]:
        """The part of the configuration for the tensor that a call is about; called when a layer's call is routed."""
        settings = {key: value for key, value in config.items() if key != "enabled"}
        for one in settings.get("tensors_struct", ()):
            if one.get("tensor") == kwargs["tensor_name"]:
                return True, {**{key: value for key, value in settings.items() if key != "tensors_struct"}, **one}
        if kwargs["tensor_name"] in settings.get("tensors", ()):
            return True, {**{key: value for key, value in settings.items() if key != "tensors"}, "tensor": kwargs["tensor_name"]}
        return False, None

    @api_method  # type: ignore[untyped-decorator]
    def inspect_tensor_enabled(
        self, config: Mapping[str, Any], layer_name: str, tensor_name: str, iteration: int, **_: Any
    ) -> bool | tuple[bool, int | None]:
        """Whether a layer is to show a tensor in this step, and in which step next."""
        schedule = self._settings_of(config, tensor_name).collect.schedule
        now = schedule.active(iteration)
        return (now, schedule.next(iteration)) if _tells_next(tensor_name, iteration) else now

    @api_method  # type: ignore[untyped-decorator]
    def inspect_tensor(
        self, config: Mapping[str, Any], layer_name: str, tensor_name: str, tensor: Any, iteration: int, tp_group: Any = None, **_: Any
    ) -> None:
        group = tp_group if tensor_name == "weight" else debug_api.get_tensor_reduction_group()
        wanted = self._settings_of(config, tensor_name)
        collecting.at_work().see(type(self).__name__, layer_name, tensor_name, tensor, wanted, iteration, group)

    def _settings_of(self, config: Mapping[str, Any], tensor_name: str) -> FeatureSettings:
        return collecting.at_work().settings_of(type(self).__name__, tensor_name, config, alarm=self.alarm)


@Registry.register_feature(namespace=NAMESPACE)
class NumscopeStats(_Feature):
    """
    Statistics by numscope: exact over micro-batches and ranks, one pass over a tensor, into numscope's sinks and nvdlfw-inspect's loggers.

    Config:

    NumscopeStats:
      enabled: True
      stats: any of numscope's, such as [mean, std, cur_amax, e4m3_underflows_pct]
      tensors: some of [activation, gradient, weight, output, wgrad, dgrad]; or tensors_struct, a list of them with settings each
      freq, start_step, end_step, start_end_list: which steps; all when left out
    """


@Registry.register_feature(namespace=NAMESPACE)
class NumscopeNonFinite(_Feature):
    """
    The first non-finite tensor of a step, in the order in which layers show them: a finding, reported at the end of the step.

    Config:

    NumscopeNonFinite:
      enabled: True
      tensors: some of [activation, gradient, weight, output, wgrad, dgrad]; or tensors_struct
      on_nonfinite: warn (when left out) or raise, which stops the run from nvdlfw_inspect.api.step()
      freq, start_step, end_step, start_end_list: which steps; all when left out
    """

    alarm = True


def _tells_next(tensor_name: str, iteration: int) -> bool:
    """Whether this Transformer Engine also accepts the next step, as its own default returns it; older ones accept only a bool."""
    default = getattr(Registry.data[NAMESPACE].api, "_default_api_impl", None)
    answer = None if default is None else default.inspect_tensor_enabled({}, "", tensor_name=tensor_name, iteration=iteration)
    return isinstance(answer, tuple)


def _collects_at(step: int) -> bool:
    """Whether some feature of ours is on schedule anywhere: all ranks have the same configuration, not all have the same layers."""
    for section in ConfigManager.configs:
        for feature in (NumscopeStats, NumscopeNonFinite):
            config = section.extension_config.get(NAMESPACE, {}).get(feature.__name__, {})
            if not config.get("enabled"):
                continue
            names = [one["tensor"] for one in config.get("tensors_struct", ())] or config.get("tensors", ())
            for name in names:
                _, settings = feature().parse_config_and_api(config, tensor_name=name)
                if feature()._settings_of(settings or {}, name).collect.schedule.active(step):
                    return True
    return False
