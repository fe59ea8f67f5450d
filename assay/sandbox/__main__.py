"""`python -m assay.sandbox`: says whether the sandbox holds on this machine; `--serve` answers other machines."""

from __future__ import annotations

import argparse
import os
import sys

from assay.core.errors import AssayError
from assay.sandbox.choice import NAMES, sandbox_of
from assay.sandbox.pool import LocalSandbox
from assay.sandbox.remote import TOKEN, server
from assay.sandbox.supervisor import MAX_SLOTS


def main() -> None:
    """Looks at the sandbox, and serves it if asked."""
    parser = argparse.ArgumentParser(prog="python -m assay.sandbox", description=__doc__)
    parser.add_argument("--sandbox", default="bubblewrap", help="bubblewrap (default), gvisor or unsafe")
    parser.add_argument("--serve", action="store_true", help=f"answer POST /run; the token is in {TOKEN}")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: this machine alone)")
    parser.add_argument("--port", type=int, default=8321, help="port to listen at (default: 8321)")
    parser.add_argument("--slots", type=int, default=32, help="programs that run at once (default: 32)")
    given = parser.parse_args()
    try:
        if given.sandbox not in NAMES:
            raise AssayError(f"--sandbox {given.sandbox} is not one of this machine's: {', '.join(NAMES)}")
        if not 2 <= given.slots <= MAX_SLOTS:
            raise AssayError(f"--slots is {given.slots}. Use 2 to {MAX_SLOTS}: some runs take two")
        sandbox = sandbox_of(given.sandbox, given.slots)
        print(
            f"the sandbox '{given.sandbox}' runs programs on this machine and was looked at from the inside", flush=True
        )
        if given.serve:
            assert isinstance(sandbox, LocalSandbox)
            server(sandbox, given.host, given.port, os.environ.get(TOKEN, "")).serve_forever()
    except AssayError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print("stopped")


if __name__ == "__main__":
    main()
