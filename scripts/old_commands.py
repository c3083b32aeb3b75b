"""Feed every `helm install` line of the old testbeds' guides to the chart, with their own values files and scripts.

    .venv/bin/python scripts/old_commands.py CHECKOUT... [--helm .helm/helm]

CHECKOUT is one of these, at any commit that has a testbed. Nothing is fetched:

    https://github.com/yangwhale/gpu-tpu-pedia
    https://github.com/yangwhale/gpu-recipes, branch a4-early-access

Prints a table with what becomes of each line: what the chart renders, or why it refuses and what to add; for one of the
old scripts also in what the programs that it started (scripts/old_launches.py) are given otherwise now. Ends with 1 if
a checkout has no testbed, if the chart does not know one of the scripts, or if a line ends otherwise.

Then it prints a table of the other commands in the guides, and what to type now. Ends with 1 if it does not know one.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from scripts.old_launches import BESIDE, Reached, bare, mpirun, planned, reached, sha256, typed, workload_of

ROOT = Path(__file__).parents[1]
CHART = ROOT / "chart"
GAP = re.compile(r"<([^<>\n]{1,40})>")
READERS = {
    "FILESTORE_IP": "10.0.0.2",
    "filestore-ip": "10.0.0.2",
    "filestore-zone": "us-central1-b",
    "filestore-instance": "my-filestore",
    "filestore-share": "share1",
    "YOUR_GCS_BUCKET": "my-bucket",
    "YOUR_AR_LOCATION": "us-central1",
}
"""What guides and values files leave to their readers, by the word between < and >; all else is my-value."""
ENVIRONMENT = {
    "USER": "alice",
    "GCS_BUCKET": "my-bucket",
    "KUEUE_NAME": "a4",
    "PROJECT_ID": "my-project",
    "ARTIFACT_REGISTRY": "us-docker.pkg.dev/my-project/my-repo",
    "WORKLOAD_IMAGE": "us-docker.pkg.dev/my-project/my-repo/testbed:1",
}
REFUSAL = "a4-agent: these values cannot be used:\n"
AGENT = "workload.agentImage=us-docker.pkg.dev/my-project/my-repo/a4-agent-cpu:debian12"
NFS = "volumes.nfs.ip=10.0.0.2,volumes.nfs.region=us-central1-b,volumes.nfs.instance=my-filestore"


@dataclass(frozen=True)
class Testbed:
    """A chart of old, with its guides and scripts, by their paths in `at`; no commit has all of them."""

    at: str
    guides: tuple[str, ...]
    launchers: tuple[str, ...]
    examples: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    """What a reader adds to a line that is refused, the first that helps."""


LAUNCHER = "gke-runtime/launchers/torchrun-stratup.sh"
UNIFIED = tuple(
    f"examples/{name}.sh"
    for name in ("nccl-test", "torchrun-ddp-test", "pai-megatron-qwen3", "pai-megatron-qwen3-next")
)
TESTBEDS = (
    Testbed(
        "training/a4/testbed",
        ("README-zh.md", "README.md", "docker/README.md"),
        (LAUNCHER,),
        add=("volumes.nfs.enabled=false",),
    ),
    Testbed(
        "training/a4/alibaba-pai-megatron-patch",
        ("README-zh.md", "README.md"),
        (LAUNCHER,),
        ("examples/qwen3.sh",),
        add=(NFS,),
    ),
    Testbed(
        "gpu/unified-testbed",
        ("README.md", "command.sh", "command.template.sh", "examples/PAI_MEGATRON_QWEN3_NEXT_MFU_TEST_RESULTS.md"),
        ("gke-runtime/launchers/torchrun-startup.sh", "gke-runtime/jobset/files/default-launcher.sh"),
        UNIFIED,
        add=("volumes.nfs.enabled=true,volumes.nfs.ip=10.0.0.2", "workload.run=script"),
    ),
    Testbed("gpu/testbed-a4", ("README-zh.md", "README.md"), (LAUNCHER,)),
)


TYPED = re.compile(
    r"^(?:kubectl|mpirun|torchrun|docker (?:build|run)|gcloud builds submit|source /|ssh |/\S*_perf)|^helm (?!install)"
)
"""Commands other than `helm install` that concern the testbeds."""
NOW = {
    r"helm uninstall .*-qwen3-30b-": "`helm uninstall $USER-pai-megatron`, as the release was named",
    r"helm ": "same",
    r"kubectl describe nodes .*a4-high": "`-l cloud.google.com/gke-accelerator=nvidia-b200`",
    r"kubectl .*_perf|/\S*_perf": "`a4-agent run nccl -- --tests all_reduce`, and the sizes",
    r"kubectl (logs|exec)": "same, with `-c workload`",
    r"kubectl ": "same",
    r"mpirun.* hostname": "`a4-agent mpirun -- hostname`",
    r"mpirun.*all_reduce_perf": "`a4-agent run nccl -- --tests all_reduce`, and the sizes",
    r"mpirun.*test_internode": "`a4-agent run deepep`",
    r"source ": "nothing: shells of pods have it",
    r"ssh ": "same, with a key of your own in SSH_PUBLIC_KEY",
    r"gcloud builds submit|docker build": "see docs/images.md: other names and tags",
    r"docker run": "same",
}
"""What to type in their place, by what they begin with."""


@dataclass(frozen=True)
class Line:
    where: str
    text: str
    """Its `export` lines before it, and itself."""


def values_of(recipe: Path) -> Path | None:
    """The values file of a testbed; None where a checkout lacks that testbed."""
    files = (recipe / "gke-runtime" / name for name in ("values.yaml", "values.template.yaml"))
    return next((file for file in files if file.is_file()), None)


def texts(testbed: Testbed, checkout: Path, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Those of the files that are there: how a table calls them, and what is in them."""
    for name in names:
        path = Path(testbed.at, name)
        if (checkout / path).is_file():
            yield f"{checkout.name}/{path}", (checkout / path).read_text()


def unknown(testbed: Testbed, checkout: Path) -> Iterator[str]:
    """Scripts that chart/files/old-scripts.yaml does not have."""
    table = yaml.safe_load((CHART / "files" / "old-scripts.yaml").read_text())
    launchers = {launcher["sha256"] for launcher in table["launchers"]}
    examples = {known for example in table["examples"] for known in example["sha256"]}
    for names, known in ((testbed.launchers, launchers), (testbed.examples, examples)):
        for path, text in texts(testbed, checkout, names):
            if sha256(text) not in known:
                count = bare(text).count("\n") + 1
                yield f"{path} is in another state than those that the chart knows: {count} lines, {sha256(text)}"


def lines(testbed: Testbed, checkout: Path) -> Iterator[Line]:
    for path, original in texts(testbed, checkout, testbed.guides):
        text = GAP.sub(lambda gap: READERS.get(gap[1], "my-value"), original)
        exports: list[str] = []
        for found in re.finditer(r"^ *((?:export \w+=|helm +install ).*(?:(?<=\\)\n.*)*)", text, re.MULTILINE):
            if found[1].startswith("helm"):
                number = text[: found.start(1)].count("\n") + 1
                yield Line(f"{path}:{number}", "\n".join((*exports, found[1])))
            elif not re.search(r"\$\(|`|_ROOT=|my-value", found[1]):
                exports.append(found[1])


def others(testbed: Testbed, checkout: Path) -> Iterator[tuple[str, str, str]]:
    """Where they stand, the commands, and what to type now; empty if that is not known."""
    for path, text in texts(testbed, checkout, testbed.guides):
        for found in re.finditer(r"^[ #]*(\S.*(?:(?<=\\)\n.*)*)", text, re.MULTILINE):
            command = " ".join(found[1].replace("\\\n", " ").split())
            if TYPED.search(command):
                number = text[: found.start(1)].count("\n") + 1
                now = next((then for pattern, then in NOW.items() if re.match(pattern, command)), "")
                yield f"{path}:{number}", command, now


def make_tree(testbed: Testbed, checkout: Path, directory: Path) -> Path:
    """The testbed as its guide has it, with our chart in the place of its own."""
    recipe = directory / testbed.at
    shutil.copytree(checkout / testbed.at, recipe)
    original = values_of(recipe)
    assert original
    shutil.rmtree(recipe / "gke-runtime" / "jobset")
    (recipe / "gke-runtime" / "jobset").symlink_to(CHART)
    values = GAP.sub(
        lambda gap: gap[0] if gap[1] in ("YOUR_HF_TOKEN", "YOUR_SSH_PUBLIC_KEY") else READERS.get(gap[1], "my-value"),
        original.read_text(),
    )
    (recipe / "gke-runtime" / "values.yaml").write_text(values)
    # Guides also name it, and start helm, in other directories.
    (recipe / "values.yaml").symlink_to("gke-runtime/values.yaml")
    for name in ("jobset", "launchers"):
        (recipe / name).symlink_to(f"gke-runtime/{name}")
    (recipe / "gke-runtime" / "mfu-test-values.yaml").write_text("{}\n")
    return recipe


def words(line: Line, recipe: Path, directory: Path) -> list[str]:
    """What stands after `helm install`, as a shell reads it."""
    roots = {"REPO_ROOT": str(directory), "RECIPE_ROOT": str(recipe), "PATH": os.environ["PATH"]}
    shown = subprocess.run(
        ["bash", "-euc", 'helm() { shift; printf "%s\\0" "$@"; }\n' + line.text],
        cwd=recipe,
        env={**ENVIRONMENT, **roots},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return shown.split("\0")[:-1]


def rendered(helm: str, flags: list[str], recipe: Path) -> tuple[bool, str]:
    """Does the chart take it, and what becomes of it, or what is said."""
    ended = subprocess.run(
        [helm, "template", *flags, "--kube-version", "1.32.0"], cwd=recipe, capture_output=True, text=True
    )
    if ended.returncode:
        said = ended.stderr.partition(REFUSAL)[2].partition("\n\n")[0]
        return False, " ".join(said.split()).removeprefix("- ") or f"NOT BY THE CHART: {ended.stderr.strip()[-200:]}"
    (jobset,) = [found for found in yaml.safe_load_all(ended.stdout) if found and found["kind"] == "JobSet"]
    container = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    env = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    script = any(mount["name"] == "script" for mount in container["volumeMounts"])
    runs = " ".join([env.get("A4_WORKLOAD") or ("its script" if script else "nothing"), *container.get("args", [])[1:]])
    stays = ", then stays" if env["SLEEP_INFINITY"] == "true" else ""
    port = f", port {env['A4_SSH_PORT']}" if env["A4_SSH_PORT"] != "2222" else ""
    old = next((text for word in flags if (text := script_of(word, recipe)) and workload_of(text)), "")
    instead = not script and (env.get("A4_WORKLOAD") or env.get("RUN_DEEPEP_TEST") == "true")
    changed = "; ".join(changes(old, env, container.get("args", []))) if old and instead else ""
    return True, f"{env['NNODES']} pods, run {runs}{stays}{port}{f'. Otherwise: {changed}' if changed else ''}"


def script_of(word: str, recipe: Path) -> str:
    """What --set-file gives, if this is its value."""
    key, _, path = word.partition("=")
    return (recipe / path).read_text() if key in ("task_script", "pai_training_script", "workload_launcher") else ""


def changes(script: str, env: dict[str, str], arguments: list[str]) -> Iterator[str]:
    """What the programs that an old script starts are given otherwise now, on two pods."""
    workload = env.get("A4_WORKLOAD") or "deepep"
    beside = {name for names in BESIDE.get(workload, []) for name in names}
    before = reached(script, {name: env[name] for name in beside & env.keys()})[0]
    words = typed({**env, "PAI_WORKSPACE_ROOT": "/mnt"}, workload, arguments)
    shown = subprocess.run([sys.executable, "-m", "agent", *words], capture_output=True, text=True, check=True).stdout
    now = planned(shown)[0]
    for was in before:
        is_ = next((one for one in now if one.program == was.program), None)
        if is_ is None:
            yield f"no {was.program}"
        else:
            now.remove(is_)
            yield from given_otherwise(was, is_)
    yield from (f"also {one.program}" for one in now if one.program != "sh")


def given_otherwise(was: Reached, is_: Reached) -> Iterator[str]:
    """For mpirun the program alone: docs/migrating.md has its options."""
    if was.program == "mpirun":
        (old, had), (new, has) = mpirun(was.arguments), mpirun(is_.arguments)
        if had[1:] and had[1:] == has[1 - len(had) :]:
            had, has = had[:1], has[: 1 - len(had)]
        ranks = f"-np {old.get('np', 'all')} → {new['np']}"
        yield f"mpirun {ranks}: {' '.join(had)} → {' '.join(has).replace(str(ROOT), '')}"
    elif was.program == "torchrun":
        yield f"torchrun: {was.arguments[-1]} → {is_.arguments[-1].replace(str(ROOT), '')}"
    else:
        pairs = itertools.zip_longest(was.arguments, is_.arguments, fillvalue="none")
        yield from (f"{was.program} {at}: {old} → {new}" for at, (old, new) in enumerate(pairs, 1) if old != new)


def outcome(helm: str, testbed: Testbed, line: Line, recipe: Path, directory: Path) -> tuple[bool, str]:
    flags = words(line, recipe, directory)
    chart = next((word for word in flags if word.rstrip("/").endswith("jobset")), "")
    if not (recipe / chart).exists():
        return True, f"of another chart, {Path(chart).relative_to(directory)}: not a testbed"
    taken, said = rendered(helm, flags, recipe)
    if "which has no a4-agent" in said:
        flags += ["--set", AGENT]
        taken, said = rendered(helm, flags, recipe)
        said = f"refused for its image. With `--set {AGENT}`: {said}" if taken else said
    if taken or said.startswith("NOT BY THE CHART"):
        return taken, said
    for at in range(len(testbed.add)):
        for added in (testbed.add[at : at + 1], testbed.add[: at + 1]):
            more = [word for setting in added for word in ("--set", setting)]
            taken, then = rendered(helm, [*flags, *more], recipe)
            if taken:
                return True, f"refused: {said}. With `{' '.join(more)}`: {then}"
    return False, f"refused, and nothing helps: {said}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs="+", metavar="CHECKOUT")
    parser.add_argument("--helm", default=str(ROOT / ".helm" / "helm"))
    options = parser.parse_args()
    helm = shutil.which(options.helm)
    if not helm:
        print(f"{options.helm} is missing: scripts/setup.sh image installs it, --helm names another", file=sys.stderr)
        return 1
    helm = os.path.abspath(helm)  # it is started in other directories
    found = {path.resolve(): [one for one in TESTBEDS if values_of(path / one.at)] for path in options.checkouts}
    pairs = [(testbed, checkout) for checkout, testbeds in found.items() for testbed in testbeds]
    wrong = [f"{checkout} has no testbed of old" for checkout, testbeds in found.items() if not testbeds]
    wrong += [said for pair in pairs for said in unknown(*pair)]
    print("".join(f"{line}\n" for line in wrong), end="", file=sys.stderr)
    print("| line | release | outcome |\n|---|---|---|")
    good = not wrong
    for testbed, checkout in pairs:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            recipe = make_tree(testbed, checkout, directory)
            for line in lines(testbed, checkout):
                fine, said = outcome(helm, testbed, line, recipe, directory)
                good = good and fine
                releases = re.findall(r"\$?(?:USER|WORKLOAD_NAME)[\w-]*|chrisya-[\w-]+|testbed-deployment", line.text)
                print(f"| {line.where} | {''.join(releases[-1:])} | {said} |")
    print("\n| command | now | in |\n|---|---|---|")
    typed: dict[tuple[str, str], list[str]] = {}
    for pair in pairs:
        for where, command, now in others(*pair):
            typed.setdefault((command.replace("|", "\\|"), now or "NOT KNOWN"), []).append(where)
    for (command, now), places in typed.items():
        print(f"| `{command}` | {now} | {len(places)}: {places[0]} |")
    return 0 if good and all(now != "NOT KNOWN" for _, now in typed) else 1


if __name__ == "__main__":
    sys.exit(main())
