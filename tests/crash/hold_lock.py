"""Hold the lock of a folder with a forked worker beside it, say so on stdout, and wait to be killed."""

import os
import sys
import time
from pathlib import Path

from assay.core import store

with store.lock(Path(sys.argv[1])):
    if os.fork() == 0:
        print(os.getpid(), flush=True)  # said by the worker: by now it has let go of the lock that it was born with
    time.sleep(120)
