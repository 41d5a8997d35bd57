# Each public name and the module it comes from: what type checkers read, and what the package imports a name by when it is first used.

from numscope.detect.two_models import compare_models as compare_models
from numscope.integrations.notebook import load_ipython_extension as load_ipython_extension
from numscope.integrations.notebook import unload_ipython_extension as unload_ipython_extension
from numscope.page.frame import load as load
from numscope.parity.fingerprint import fingerprint as fingerprint
from numscope.parity.logprobs import compare_logprobs as compare_logprobs
from numscope.plugins.registry import feature as feature
from numscope.plugins.registry import logger as logger
from numscope.plugins.registry import rule as rule
from numscope.plugins.registry import statistic as statistic
from numscope.precision.high_precision import high_precision as high_precision
from numscope.records.alert import Alert as Alert
from numscope.records.errors import AlertError as AlertError
from numscope.records.errors import NonFiniteError as NonFiniteError
from numscope.records.errors import UsageError as UsageError
from numscope.records.finding import Culprit as Culprit
from numscope.records.finding import Finding as Finding
from numscope.records.fingerprint import Fingerprint as Fingerprint
from numscope.runs.fingerprints import compare as compare
from numscope.scope.scope import Scope as Scope
from numscope.scope.watching import watch as watch
from numscope.summary.dispatch import summarize as summarize
from numscope.summary.one_value import check as check
from numscope.summary.state import Summary as Summary
from numscope.version import __version__ as __version__
