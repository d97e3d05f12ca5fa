"""Run run.py under a limit of the operating system: `limited_driver.py LIMIT OVERRIDES...`

file_size=BYTES: no file may grow beyond, as on a disk that is full. permissions: root is bound by them as others are.
"""

import ctypes
import os
import resource
import sys

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1

kind, _, value = sys.argv[1].partition("=")
if kind == "file_size":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(value), int(value)))
elif os.geteuid() == 0 and ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0):
    sys.exit("permissions cannot be enforced for root here")
os.execv(sys.executable, [sys.executable, "run.py", *sys.argv[2:]])
