"""a4-agent: brings the pods of a GPU JobSet together and runs one workload on all of them.

The public names are documented in docs/api.md, and __init__.pyi says where each is. A name is imported when it is
first used: `import agent`, which every start of the command line does, costs nothing.
"""

__version__ = "0.1.0"


def _modules():
    with open(f"{__file__}i", encoding="utf-8") as file:
        return {line.split()[3]: line.split()[1] for line in file if line.startswith("from ")}


def __getattr__(name):
    if name == "__all__":
        found = ["__version__", *_modules()]
    elif name.startswith("_") or name not in (modules := _modules()):
        raise AttributeError(f"module 'agent' has no attribute {name!r}")
    else:
        from importlib import import_module

        found = getattr(import_module(modules[name]), name)
    globals()[name] = found
    return found


def __dir__():
    return sorted({*(name for name in globals() if name.startswith("__")), "__all__", "__version__", *_modules()})
