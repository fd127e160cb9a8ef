"""The names of the package, for type checkers; python -m tests.api.stubs writes it."""

from privplan.accounting.accountant import accountant as accountant
from privplan.accounting.certificate import Certificate as Certificate
from privplan.accounting.certificate import certify as certify
from privplan.accounting.curve import PrivacyCurve as PrivacyCurve
from privplan.accounting.curve import compose as compose
from privplan.accounting.release import History as History
from privplan.accounting.release import Relation as Relation
from privplan.accounting.release import Release as Release
from privplan.accounting.release import SamplingLaw as SamplingLaw
from privplan.api import account as account
from privplan.api import calibrate as calibrate
from privplan.api import forecast as forecast
from privplan.api import frontier as frontier
from privplan.api import preset as preset
from privplan.api import replay as replay
from privplan.api import tradeoff as tradeoff
from privplan.api import verify as verify
from privplan.api import what_if as what_if
from privplan.book.book import Book as Book
from privplan.errors import PrivplanError as PrivplanError
from privplan.guard import Guard as Guard
from privplan.plan import Plan as Plan
from privplan.planning.solver import solve as solve
from privplan.record import RunRecord as RunRecord
from privplan.spec.spec import Spec as Spec
from privplan.verification.verdict import Verdict as Verdict
from privplan.verification.verify import judge as judge
from privplan.verification.verify import load_run as load_run

STABLE: dict[str, str]
__version__: str
