"""Download a model: download-model.py huggingface|modelscope NAME REVISION DIRECTORY

Runs under a Python that has huggingface_hub or modelscope. What an earlier start has left in DIRECTORY is taken up, and
an empty REVISION is the newest. Tokens come through the environment alone (HF_TOKEN, MODELSCOPE_API_TOKEN). On stdout
JSON lines: {"total": bytes} and, when it failed, {"code", "what", "hint"}: 66 for what does not come by asking again.
"""

from __future__ import annotations

import json
import os
import sys
from errno import EDQUOT, ENOSPC

MISSING, SYSTEM, DIRECTORY, AGAIN = 66, 71, 73, 75
NO_ROOM = (ENOSPC, EDQUOT)


def tell(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def from_huggingface(name: str, revision: str, directory: str) -> None:
    from huggingface_hub import HfApi, snapshot_download

    files = HfApi().model_info(name, revision=revision or None, files_metadata=True).siblings or []
    tell(total=sum(file.size or 0 for file in files))
    snapshot_download(name, revision=revision or None, local_dir=directory)


def from_modelscope(name: str, revision: str, directory: str) -> None:
    from modelscope.hub.api import HubApi
    from modelscope.hub.snapshot_download import snapshot_download

    files = HubApi().get_model_files(name, revision=revision or None, recursive=True)
    tell(total=sum(int(file.get("Size") or 0) for file in files))
    snapshot_download(name, revision=revision or None, local_dir=directory)


def status(error: BaseException | None) -> int:
    """The status of the server's answer to this request or to the one that made it fail; 0: there was none."""
    for holder in (getattr(error, "response", None), error):
        found = getattr(holder, "status_code", None)
        if isinstance(found, int):
            return found
    return status(error.__cause__) if error is not None else 0


def failure(error: Exception, source: str, directory: str) -> tuple[int, str, str]:
    """Exit code, what happened and what to do."""
    failed = getattr(error, "failed_files", None)  # modelscope: of all files, after all of them were tried
    if failed:
        each = [(name, *failure(why, source, directory)) for name, why in failed.items()]
        name, code, what, hint = min(each, key=lambda one: one[1] == AGAIN)
        return code, f"{name}: {what}", hint
    what = str(error).strip().split("\n")[0] or type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        return SYSTEM, f"{sys.executable} has no {error.name}", "A4_DOWNLOADERS_DIR names the directory of downloaders"
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return DIRECTORY, what, f"make room in {directory}; what was downloaded so far is kept"
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        return DIRECTORY, f"{error.filename}: {error.strerror}", ""
    answer = status(error)
    if answer in (401, 403):
        token = "HF_TOKEN" if source == "huggingface" else "MODELSCOPE_API_TOKEN"
        return MISSING, what, f"it may need a token that is allowed to read it: {token}"
    if answer in (400, 404) or "NotExist" in type(error).__name__:
        return MISSING, what, "are its name and its revision right?"
    return AGAIN, what, "what was downloaded so far is kept"


def main(source: str, name: str, revision: str, directory: str) -> int:
    for variable in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY", "TQDM_DISABLE"):
        os.environ.setdefault(variable, "1")
    try:
        (from_huggingface if source == "huggingface" else from_modelscope)(name, revision, directory)
    except Exception as error:
        code, what, hint = failure(error, source, directory)
        tell(code=code, what=f"{name} of {source}: {what}", hint=hint)
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
