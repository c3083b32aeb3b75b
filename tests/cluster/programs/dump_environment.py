# Writes the environment that it has to a file of its own in the directory named first: JSON, bytes by surrogateescape.
import json
import os
import sys

rank = os.environ.get("OMPI_COMM_WORLD_RANK", "-")
path = f"{sys.argv[1]}/{os.uname().nodename}-{rank}-{os.getpid()}.json"
os.makedirs(sys.argv[1], exist_ok=True)
with open(f"{path}.new", "w", encoding="ascii") as file:
    json.dump(dict(os.environ), file)
os.rename(f"{path}.new", path)
