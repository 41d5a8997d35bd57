"""A configuration, from YAML or a dict to a plan; every error names the key as the user wrote it."""

# pydantic and PyYAML are loaded when a configuration is.
from numscope.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__, globals())
