# Each public name and the module it comes from: what type checkers read, and what the package imports a name by when it is first used.

from numscope.config.loading import load as load
from numscope.config.resolving import Resolved as Resolved
from numscope.config.resolving import resolve as resolve
