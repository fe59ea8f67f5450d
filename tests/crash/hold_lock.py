"""Hold the lock of a folder with a forked worker beside it, say so on stdout, and wait to be killed."""

import os
import sys
import time
from pathlib import Path

from assay import store

with store.lock(Path(sys.argv[1])):
    worker = os.fork()
    if worker:
        print(worker, flush=True)
    time.sleep(120)
