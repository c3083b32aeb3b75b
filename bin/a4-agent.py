#!python
# pip writes the Python that it installs for into the first line; bin/a4-agent reads it there.
import sys

try:
    import agent  # noqa: F401
except ModuleNotFoundError:  # pip install --user, --prefix or --target, which -I leaves out
    import os
    import site

    prefix = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    library = f"{prefix}/lib/python{sys.version_info[0]}.{sys.version_info[1]}"
    for directory in (f"{library}/site-packages", f"{library}/dist-packages", prefix):  # Debian's pip: dist-packages
        site.addsitedir(directory)

from agent.cli import entry

entry()
