"""What setup.cfg cannot say: README.md as an index shows it, where a relative link leads nowhere."""

import re
from pathlib import Path

from setuptools import setup
from setuptools.dist import Distribution

about = Distribution()
about.parse_config_files()


def whole(link):
    """Pages are read at the repository; a picture is the file itself."""
    place = "raw" if link[0].startswith("!") else "blob"
    return f"{link[1]}({about.metadata.project_urls['Source']}/{place}/v{about.metadata.version}/"


setup(
    long_description=re.sub(r"(!?\[[^\]]*\])\((?!https?:|#)", whole, Path("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
