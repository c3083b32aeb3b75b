"""a4-agent: brings the pods of a GPU JobSet together and runs one workload on all of them."""

__version__ = "0.1.0"
