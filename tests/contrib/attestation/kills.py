"""``tests.guard.kills`` with a run that the key in the folder's file ``key`` signs."""

import sys
from pathlib import Path

from privplan.contrib.attestation import Signing, SigningKey
from tests.guard import kills

if __name__ == "__main__":
    key = Path(sys.argv[1]) / "key"
    signer = {"name": "server", "role": "server", "key": SigningKey.load(key).public}
    kills.main((signer,), Signing(key))
