"""A process that needs no other: told to end it saves and ends with 0, as docs/grace.md advises.

    saving.py SECONDS

Makes /mnt/turns-POD at its beginning, and at its end /mnt/done-POD or, where it was told to end before, /mnt/saved-POD.
"""

import os
import signal
import sys

pod = os.environ["JOB_COMPLETION_INDEX"]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
open(f"/mnt/turns-{pod}", "w").close()
told = signal.sigtimedwait([signal.SIGTERM], float(sys.argv[1]))
open(f"/mnt/{'saved' if told else 'done'}-{pod}", "w").close()
