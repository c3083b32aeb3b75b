"""Runs before each Python program of a run: the agent puts this directory in front of PYTHONPATH.

In a rank it is taken out again before anything of the user's runs: the rank, and what it starts, has the PYTHONPATH
that it would have had, and the user's own sitecustomize. In other processes, torchrun's for one, the directory stays in
os.environ, so that ranks get it.

This file is for every Python that a program may have, also 2.7: it uses nothing that is newer.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Launchers have none of these variables. What a rank starts has them, but not this directory in its PYTHONPATH.
RANK = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK" if "LOCAL_RANK" in os.environ else "")
if RANK:
    DIRECTORY = os.environ.pop("A4_WHY_DIR", "")
    try:
        import a4_rank_hook

        a4_rank_hook.begin(RANK, DIRECTORY)
    except Exception:  # as of a Python before 3.7, which cannot read it: a run is worth more than a look at it
        pass
    sys.modules.pop("a4_rank_hook", None)
    PATH = ":".join(entry for entry in os.environ.get("PYTHONPATH", "").split(":") if entry != HERE)
    if PATH:
        os.environ["PYTHONPATH"] = PATH
    else:
        os.environ.pop("PYTHONPATH", None)
sys.path[:] = [entry for entry in sys.path if entry != HERE]
sys.path_importer_cache.pop(HERE, None)
# What would have been imported in place of this. That there is none, or that it fails, is told to who wanted it.
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402, F401
