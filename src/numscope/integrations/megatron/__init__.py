"""Megatron-LM: a watch on its model chunks, and low precision in its tensor-parallel layers."""

try:
    import megatron.core  # noqa: F401
except ImportError as error:
    raise ImportError(f"numscope.integrations.megatron: {error}. Install Megatron Core: pip install --no-deps megatron-core.") from error

from numscope.integrations.megatron.attaching import Attached, attach
from numscope.integrations.megatron.gemms import convert, revert

__all__ = ["Attached", "attach", "convert", "revert"]
