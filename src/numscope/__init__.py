"""Finds the first bad number in a PyTorch training run: which tensor, operation, line and rank, and why.

Importing the package loads nothing but itself: each name of ``__init__.pyi`` is fetched when it is first used.
"""

from numscope.lazy import lazy_names
from numscope.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__, globals())
