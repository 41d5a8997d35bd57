"""``nvdlfw_inspect`` by its own names: put ``numscope.compat.`` before it in a script's imports."""

from numscope.compat.nvdlfw_inspect.api import *  # noqa: F403  # the list of names is api's
from numscope.compat.nvdlfw_inspect.api import __all__ as __all__
