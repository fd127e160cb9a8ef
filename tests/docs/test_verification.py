"""The files that docs/verification.md says are read."""

import ast
import re
from pathlib import Path

from privplan.auditing import AUDIT
from privplan.evidence import CLIENTS, EVIDENCE, NOISE_EVIDENCE
from privplan.record import LEDGER, PLAN, RECORD, REPLAY

ROOT = Path(__file__).parents[2]
READERS = {
    "PLAN": PLAN,
    "LEDGER": LEDGER,
    "RunRecord": RECORD,
    "read_evidence": EVIDENCE,
    "read_noise_evidence": NOISE_EVIDENCE,
    "read_clients": CLIENTS,
    "AuditEvidence": AUDIT,
    "REPLAY": REPLAY,
    "read_attestation": "attestation.jsonl",
    "read_anchors": "anchors.jsonl",
}
"""What the code of a verdict names to read a file of the run folder."""


def test_all_files_that_a_verdict_reads_are_named():
    intro = (ROOT / "docs" / "verification.md").read_text().partition("It writes")[0]
    assert set(re.findall(r"`([a-z]+\.[a-z]+)`", intro)) == {*READERS.values()}
    used: set[str] = set()
    signed = ROOT / "privplan" / "contrib" / "attestation" / "check.py"
    for path in (*(ROOT / "privplan" / "verification").rglob("*.py"), signed):
        names = [one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Name)]
        used |= {one.id for one in names}
    assert {*READERS} <= used
    readers = {name for name in used if name.startswith("read_")}
    assert readers - {"read_ledger", "read_text"} <= {*READERS}
