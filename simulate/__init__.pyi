"""The names of the package, for type checkers; python -m tests.api.stubs writes it."""

from simulate.data.own import Data as Data
from simulate.tracking import Callback as Callback
from simulate.training import Comparison as Comparison
from simulate.training import TrainedRun as TrainedRun
from simulate.training import compare as compare
from simulate.training import train as train
