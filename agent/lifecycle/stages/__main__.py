"""Carries out a pipeline on this pod: python -m agent.lifecycle.stages PIPELINE"""

from __future__ import annotations

import sys

from agent.decide.pipeline_text import unpack


def main() -> int:
    pipeline = unpack(sys.argv[1])
    print(f"a4-agent: {len(pipeline.stages)} stages are not carried out yet", file=sys.stderr)
    return 70


if __name__ == "__main__":
    sys.exit(main())
