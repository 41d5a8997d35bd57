"""Number formats, scaling, quantization, and training with them. Each name of ``__init__.pyi`` is imported when it is first used."""

# No public name is a file's name: importing that file would put the module in the name's place.
from numscope.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__, globals())
