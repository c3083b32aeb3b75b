"""Results as runs leave them: small functions, each gives a result.json that is valid by the schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
NOON = 1_772_625_600.0
DOMAIN = "a4-train-workload.default.svc.cluster.local"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv")
FACTORS = {"all_reduce": 1.0, "all_gather": 0.96, "reduce_scatter": 0.95, "broadcast": 0.72, "alltoall": 0.55}
HEX = "4e52447852ecb6d1a9c03f5e7d2b8810"
HOSTILE = '<script>alert("x")</script>'


def place(number: int, per_block: int = 2) -> list[str]:
    return ["us-central1-ai4", f"{number // per_block:02x}{HEX[2:]}", f"{number:04x}{HEX[4:]}", f"fe85{number:028x}"]


def pod(index: int, rank: int | None = None, **changes: Any) -> Json:
    """`rank`: position in the plan."""
    at = index if rank is None else rank
    late = 0.04 * (index * 7 % 5) + 0.002 * index
    steps = ("agent-started", "sshd-listening", "facts-ready", "coordinator-connected", "peers-ready", "plan-ready")
    seconds = dict(zip(steps, (0.0, 0.17, 0.21, 0.35 + late, 1.2, 1.22), strict=True))
    seconds |= {"process-started": 1.25 + late / 4, "ranks-ready": 9.4, "first-collective": 9.9}
    seconds["process-ended"] = 312.0 + late
    start = NOON + late * 3
    phases = {
        name: round(max(start, NOON + after) if after > 0.5 else start + after, 3) for name, after in seconds.items()
    }
    found = {
        "index": index,
        "name": f"a4-train-workload-0-{index}.{DOMAIN}",
        "node": f"gke-a4-pool-4c9f4b71-{index:04x}",
        "address": f"10.0.{index // 250}.{index % 250 + 4}",
        "place": place(at),
        "status": 0,
        "lost": "",
        "phases": phases,
        "inventory": {"gpus": "8 × NVIDIA B200", "driver": "580.95.05", "kernel": "6.12.55+", "mpirun": "5.0.8"},
    }
    return found | changes


def verdict(what: str, code: int = 0, **changes: Any) -> Json:
    status = "passed" if code == 0 else "ended" if code in (130, 143) else "failed"
    found = {"status": status, "code": code, "what": what, "where": "", "why": "", "origin": "agent", "reasons": []}
    return found | changes


def launch(workload: str) -> Json:
    environment = {
        "A4_RUN": f"{workload}-5f1c09",
        "A4_RECORD": f"/run/a4-agent/runs/{workload}-5f1c09/record.jsonl",
        "MASTER_ADDR": f"a4-train-workload-0-0.{DOMAIN}",
        "MASTER_PORT": "29500",
        "NCCL_NET": "gIB",
        "NCCL_IB_TC": "52",
        "LD_LIBRARY_PATH": "/usr/local/gib/lib64:/usr/local/nvidia/lib64:/usr/local/cuda/lib64",
        "HF_TOKEN": "***",
    }
    options = "--nnodes=4 --nproc-per-node=8 --node-rank=0"
    argv = f"torchrun {options} /opt/a4-agent/{workload}.py --seed 7".split()
    added = ["A4_RUN", "A4_RECORD", "MASTER_ADDR", "MASTER_PORT"]
    return {"argv": argv, "cwd": "/workspace", "environment": environment, "added": added}


def result(workload: str, pods: Sequence[Json], **changes: Any) -> Json:
    found = {
        "version": 2,
        "agent": "0.2.0",
        "job": "a4-train-x7k2p",
        "epoch": "0f0e5f3a-7a6b-4d0e-9c57-4a1f9b1f6d3e.0.0",
        "run": f"{workload}-5f1c09",
        "workload": workload,
        "args": [],
        "by": "ENTRYPOINT of pod 0",
        "since": NOON,
        "until": NOON + 313.2,
        "verdict": verdict(f"{workload} is good: {8 * len(pods)} ranks on {len(pods)} pods"),
        "slots": 8,
        "order": {"source": "physical_host_topology", "warnings": []},
        "pods": list(pods),
        "differences": [],
        "launch": launch(workload),
        "versions": {"a4-agent": "0.2.0", "torch": "2.9.1+cu130", "cuda": "13.0", "nccl": "2.28.9"},
        "limits": {"timeout": 3600, "stall": 600},
        "tables": [],
        "sweeps": [],
        "profile": {"name": "gib-a4", "why": "the nodes are a4-highgpu-8g"},
        "gate": None,
        "record": {},
        "trainings": [],
    }
    return found | changes


def training(stage: str = "train", count: int = 97, **changes: Any) -> Json:
    """A loss that falls, a first iteration that is slow, one that was skipped, and, in the middle, another slow one."""
    numbers = {"loss": 11.9, "milliseconds": 1840.0, "tflops": 92.5, "grad_norm": 1.4}
    iterations: list[Json] = [
        numbers
        | {"iteration": at, "loss": round(2 + 9.9 / at, 4), "milliseconds": 1840.0 + 5 * (at % 4)}
        | {"tflops": 92.5 + at % 3, "skipped": 0, "nans": 0}
        for at in range(1, count + 1)
    ]
    iterations[0] |= {"milliseconds": 31_500.0, "tflops": 5.4}
    if count > 50:
        iterations[49] |= {"milliseconds": 2610.0}
    iterations[4] |= {"loss": None, "grad_norm": None, "skipped": 1}
    found = {"stage": stage, "planned": count, "count": count, "skipped": 1, "nans": 0, "iterations": iterations}
    return found | changes


def curve(values: Sequence[float | None], **changes: Any) -> Json:
    found = {"of": "rank", "steps": list(range(0, 10 * len(values), 10)), "values": list(values), "pod": 0, "rank": 0}
    return found | changes


def series(name: str, *curves: Json, **changes: Any) -> Json:
    values = [value for one in curves for value in one["values"] if value is not None]
    steps = [step for one in curves for step in one["steps"]]
    found = {
        "name": name,
        "unit": "",
        "ranks": len(curves),
        "pods": len({one["pod"] for one in curves}),
        "records": len(steps),
        "first_step": min(steps),
        "last_step": max(steps),
        "first": values[0] if values else None,
        "last": values[-1] if values else None,
        "least": min(values, default=None),
        "greatest": max(values, default=None),
        "nans": len(steps) - len(values),
        "nan_at": None if len(values) == len(steps) else 0,
        "curves": list(curves),
    }
    return found | changes


def logged() -> Json:
    """Series of one rank, of a few with a value that is no number, of each pod, of many ranks."""
    few = [curve([-3.0, None, -1.0 - rank, rank / 4], rank=rank) for rank in range(4)]
    pods = [curve([7e9 + index, 7.5e9], pod=index, rank=None) for index in range(2)]
    spread = [curve([middle + more for middle in (4.0, 2.0, 1.0)], of=name, pod=None, rank=None)
              for name, more in (("median", 0.0), ("least", -0.5), ("greatest", 0.5))]  # fmt: skip
    return result(
        "torchrun",
        [pod(index) for index in range(2)],
        series=[
            series("loss", curve([10 / (step + 1) for step in range(100)])),
            series("reward", *few),
            series("tokens", *pods, unit="1/s"),
            series("grad norm", *spread, ranks=64, pods=8),
            series("constant", curve([0.0])),
            series("lost", curve([None, None])),
        ],
    )


def table(name: str, title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> Json:
    named = [{"name": column, "unit": unit} for column, unit in columns]
    return {"name": name, "title": title, "columns": named, "rows": [list(row) for row in rows]}


def measured(size: int, peak: float, factor: float, wrong: int | None = 0) -> Json:
    busbw = peak * size / (size + 2**25)
    algbw = busbw / factor
    return {
        "time": round(size / max(algbw, 1e-9) / 1e3 + 21, 2),
        "algbw": round(algbw, 2),
        "busbw": round(busbw, 2),
        "wrong": wrong,
    }


def sweep(collective: str, ranks: int = 32, peak: float = 380.0, **changes: Any) -> Json:
    """From 1 KiB to 8 GiB."""
    peak, factor = peak * FACTORS.get(collective, 0.4), 2 * (ranks - 1) / ranks
    sizes = [2**power for power in range(10, 34)]
    rows = [
        {
            "size": size,
            "count": size // 4,
            "out_of_place": measured(size, peak * (1 + 0.01 * (size % 7 - 3)), factor),
            "in_place": None if collective == "alltoall" else measured(size, peak * 1.004, factor),
        }
        for size in sizes
    ]
    found = {
        "collective": collective,
        "ranks": ranks,
        "backend": "nccl",
        "type": "float",
        "redop": "sum" if "reduce" in collective else "none",
        "root": -1,
        "iterations": 20,
        "warmup": 5,
        "rows": rows,
        "average_busbw": round(sum(row["out_of_place"]["busbw"] for row in rows) / len(rows), 4),
        "out_of_bounds": 0,
        "baseline": None,
    }
    return found | changes


def baseline(peak: float) -> Json:
    rows = [{"size": 2**power, "busbw": round(peak * 2**power / (2**power + 2**25), 2)} for power in range(20, 34)]
    return {"name": "a4-highgpu-8g, 4 nodes", "source": "env/baselines/a4.json, measured 2026-02-11", "rows": rows}


def ddp() -> Json:
    pods = [pod(index, rank) for rank, index in enumerate((0, 2, 1, 3))]
    rows = [[rank, pods[rank // 8]["index"], 812.0 - rank * 0.37, 19.71 + rank * 0.01, 1.21] for rank in range(32)]
    columns = [("rank", ""), ("pod", ""), ("samples", "1/s"), ("step", "ms"), ("gradients", "GB/s")]
    return result("ddp", pods, args=["--steps", "50"], tables=[table("ddp", "Speed of each rank", columns, rows)])


def collectives() -> Json:
    """Six sweeps, all right."""
    return result("collectives", [pod(index) for index in range(4)], sweeps=[sweep(name) for name in COLLECTIVES])


def wrong() -> Json:
    """Wrong elements, and pods that differ."""
    pods = [pod(index) for index in range(4)]
    pods[3]["inventory"] = pods[3]["inventory"] | {"driver": "570.133.20", "kernel": "6.6.97+"}
    pods[3]["status"] = 65
    bad = sweep("all_reduce")
    bad["rows"][14]["out_of_place"]["wrong"] = 17
    bad["rows"][17]["in_place"]["wrong"] = 1_048_576
    reasons = [
        "all_reduce of 16 MiB, out-of-place: 17 wrong elements on rank 27, pod 3",
        "all_reduce of 128 MiB, in-place: 1048576 wrong elements on ranks 24-31, pod 3",
    ]
    found = verdict(
        "all_reduce gives wrong results: 2 of 24 sizes",
        65,
        where=f"pod 3, a4-train-workload-0-3.{DOMAIN}",
        why="Only ranks of pod 3 are wrong, and pod 3 differs from the others in its driver.\n"
        "Run without it:  a4-agent run --exclude 3 collectives\nThen cordon node gke-a4-pool-4c9f4b71-0003.",
        reasons=reasons,
    )
    differences = [
        {"what": "driver", "usual": "580.95.05", "odd": {"570.133.20": [3]}},
        {"what": "kernel", "usual": "6.12.55+", "odd": {"6.6.97+": [3]}},
    ]
    return result("collectives", pods, verdict=found, sweeps=[bad, sweep("all_gather")], differences=differences)


def lost() -> Json:
    """A pod that went away in the middle."""
    pods = [pod(index) for index in range(4)]
    pods[2] |= {"status": None, "lost": "not heard for 30 s"}
    del pods[2]["phases"]["process-ended"]
    for other in (0, 1, 3):
        pods[other]["status"] = -15
    found = verdict("a pod was lost", 75, where=f"pod 2, a4-train-workload-0-2.{DOMAIN}", why="Its node may be dead")
    sentence = "rank 17 (pod 2) has not entered all_reduce #21, which 31 ranks wait in"
    lives = [life(137, "rank 9 was killed by SIGKILL"), life(75, "a pod was lost during the run", 2)]
    return result("ddp", pods, verdict=found, diagnosis=diagnosis(sentence), findings=[finding("XIDs")], lives=lives)


def life(code: int, what: str, *lost: int) -> Json:
    """One that ended so, with these pods lost in it."""
    when = {"since": NOON, "noticed": NOON + 89.75, "until": NOON + 90.0, "joined": NOON + 101.0, "next": NOON + 101.5}
    return {**when, "verdict": verdict(what, code, where="pod 2"), "lost": list(lost)}


def diagnosis(text: str) -> Json:
    """Why a run stood still: `text`, which one source shows."""
    return {"status": "hangs", "sentence": text, "sources": [{"name": "recorder", "state": "found", "text": text}]}


def finding(text: str) -> Json:
    """Something that is bad in pod 2."""
    return {"check": text, "state": "bad", "severity": "fatal", "pod": 2, "node": text, "value": text, "action": text}


def connectivity(pods: int = 4, **changes: Any) -> Json:
    """A ring of pods, whose second pair is slow and whose last is late."""
    columns = [("ranks", ""), ("pods", ""), ("latency", "µs"), ("bandwidth", "GB/s"), ("message", "bytes")]
    pods_of = [f"a4-train-workload-0-{at}" for at in (*range(pods), 0)]
    pairs: list[list[Any]] = [
        [f"{8 * at} - {8 * (at + 1) % (8 * pods)}", " - ".join(pods_of[at : at + 2]), 14.25 + at, 46.5 - at, 2**23]
        for at in range(pods)
    ]
    pairs[1][3], pairs[-1][2] = 12.0, 61.5
    found = result("connectivity", [pod(index) for index in range(pods)])
    return found | {"tables": [table("pairs", "Neighbours", columns, pairs)]} | changes


SIZES: Json = {"model": "Qwen/Qwen3-30B-A3B", "sequence": 4096, "batch": 64}


def trained() -> Json:
    """A pipeline with two trainings; of the second the sizes are not known."""
    second = training("json-sft", 9)
    stages = [["clone", 0.4, "complete, by its content"], ["train", 1840.25, ""], ["json-sft", 20.5, ""]]
    tables = [table("stages", "Stages", [("stage", ""), ("time", "s"), ("what was done", "")], stages)]
    pods = [pod(index) for index in range(2)]
    return result("pai-megatron-qwen3", pods, trainings=[training(**SIZES), second], tables=tables)


def diverged() -> Json:
    """As `trained`, of a later hour, slower, and with losses that are no numbers."""
    other = training(**SIZES, nans=2)
    for one in other["iterations"]:
        one["milliseconds"] *= 1.1
    for at in (60, 61):
        other["iterations"][at] |= {"nans": 1, "loss": None}
    reason = "train: the loss of 2 of 97 iterations is not a number"
    later = {"run": "pai-megatron-qwen3-9aa0c1", "since": NOON + 3600, "until": NOON + 5800}
    return (
        trained() | later | {"trainings": [other], "verdict": verdict(reason, 65, origin="workload", reasons=[reason])}
    )


def none() -> Json:
    """Nothing was launched, no place is known, one pod has said little."""
    pods = [pod(index, place=[], inventory={}) for index in range(2)]
    pods[1]["phases"] = {}
    more = {"slots": 1, "job": "", "limits": {"timeout": 0, "stall": 0}, "versions": {}}
    order = {"source": "", "warnings": ["the metadata server of pod 1 answered 503 for 20 s"]}
    return result(
        "none", pods, launch=None, profile=None, order=order, verdict=verdict("the cluster is formed"), **more
    )


def ended() -> Json:
    found = verdict("the run was cancelled", 130, why="a4-agent cancel in pod 1 (pid 4711)", origin="agent")
    return result("script", [pod(index) for index in range(2)], verdict=found)


def gated() -> Json:
    """Slower than its baseline from 1 GiB on."""
    slow = sweep("all_reduce", peak=340.0, baseline=baseline(385.0))
    for row in slow["rows"][-4:]:
        row["out_of_place"]["busbw"] *= 0.8
    reason = "all_reduce at 8 GiB: 268.3 GB/s out-of-place, the baseline is 383.5 GB/s: 70 %, the least is 90 %"
    found = verdict("nccl ran well but below its gate", 65, why=reason, reasons=[reason])
    sweeps = [slow, sweep("all_gather", baseline=baseline(370.0))]
    gate = {"status": "failed", "reason": reason}
    return result(
        "nccl", [pod(index) for index in range(4)], verdict=found, sweeps=sweeps, gate=gate, run="nccl-77aa01"
    )


def many(count: int = 64) -> Json:
    """Many pods in blocks of 16, one of them slow to come, with a row per rank and another per pair."""
    pods = [pod(index, place=place(index, per_block=16)) for index in range(count)]
    pods[-3]["phases"]["coordinator-connected"] += 4.2
    for one in pods:
        for name in list(one["phases"])[4:]:
            one["phases"][name] += 5
    ranks = [[rank, rank // 8, 790.0 + rank % 13, 19.7 + 0.01 * (rank % 17)] for rank in range(8 * count)]
    pairs = [
        [f"{rank} – {(rank + 8) % (8 * count)}", rank // 8, 14.2 + rank % 5, 46.1 - rank % 3]
        for rank in range(8 * count)
    ]
    tables = [
        table("ranks", "Speed of each rank", [("rank", ""), ("pod", ""), ("samples", "1/s"), ("step", "ms")], ranks),
        table("pairs", "Neighbours", [("ranks", ""), ("pod", ""), ("latency", "µs"), ("bandwidth", "GB/s")], pairs),
    ]
    return result("ddp", pods, tables=tables, sweeps=[sweep(name, ranks=8 * count) for name in COLLECTIVES])


def hostile() -> Json:
    """Text that would be markup, control characters and very long words, wherever a result has text."""
    long = "x" * 300
    pods = [pod(0, node=HOSTILE, name=f"{long}.{HOSTILE}", lost="<b>", place=["a&b", HOSTILE, long]), pod(1, node=long)]
    pods[0]["inventory"] = {HOSTILE: "<img src=x onerror=alert(1)>", "driver": "\x1b[31m\0"}
    started = launch("ddp") | {"environment": {"A": "</style><script>alert(2)</script>", "B": long, "C": "{{ 7 * 7 }}"}}
    bad = sweep("$\\frac<script>", type=HOSTILE, baseline=baseline(100.0) | {"name": HOSTILE, "source": "</svg>"})
    return result(
        HOSTILE,
        pods,
        args=[HOSTILE, long],
        job='"><script>alert(3)</script>',
        by="\ud800 & <i>",
        verdict=verdict(HOSTILE, 1, where="<b>", why="</p><script>", reasons=[HOSTILE, long], origin="workload"),
        order={"source": "<u>", "warnings": [HOSTILE]},
        launch=started,
        versions={HOSTILE: HOSTILE},
        differences=[{"what": HOSTILE, "usual": "<p>", "odd": {HOSTILE: [0]}}],
        tables=[
            table("t", HOSTILE, [(HOSTILE, "<s>"), ("n", "B")], [[HOSTILE, 1.5], [None, 2.5], [True, None]]),
            table("find-slow-pods", HOSTILE, [("node", ""), ("of usual", "%")], [[HOSTILE, 80.0], [long, 99.0]]),
        ],
        diagnosis=diagnosis(HOSTILE),
        findings=[finding(HOSTILE), finding(long)],
        sweeps=[bad],
        trainings=[training(HOSTILE), training(long, iterations=[])],
        series=[
            series(HOSTILE, curve([1e300, -1e300, 5e-324], steps=[0, 1, 1 << 53]), unit="$\\frac</svg>"),
            series(long, curve([5e-324]), curves=[]),
        ],
        profile={"name": HOSTILE, "why": "<p>"},
        gate={"status": "not judged", "reason": HOSTILE},
        warnings=[HOSTILE],
    )


EXAMPLES: dict[str, Callable[[], Json]] = {
    make.__name__: make
    for make in (ddp, collectives, wrong, lost, connectivity, trained, diverged, logged, none, gated, many, hostile)
}


def compared() -> list[Json]:
    """Three runs of collectives: another NCCL in the second; a setting, an order and fewer sweeps in the third."""
    second = collectives() | {"run": "collectives-9d20aa", "since": NOON + 3600, "until": NOON + 3890}
    second["versions"] = second["versions"] | {"nccl": "2.27.3"}
    second["sweeps"] = [sweep(name, peak=352.0) for name in COLLECTIVES]
    third = wrong() | {"run": "collectives-b21e44", "since": NOON + 7200, "until": NOON + 7490}
    third["pods"] = [third["pods"][at] for at in (0, 2, 1, 3)]
    third["launch"]["environment"]["NCCL_IB_TC"] = "0"
    third["args"] = ["--dtype", "bfloat16"]
    speed = [("rank", ""), ("busy", "%")]
    runs = [collectives(), second, third]
    for number, one in enumerate(runs):
        one["series"] = [series("loss", *[curve([4.0, 2.0 + number / 4], rank=rank) for rank in range(number + 1)])]
        one["tables"] = [table("load", "Load of the ranks", speed, [[rank, 91.5 + rank - number] for rank in range(4)])]
    return runs


def write(path: Path, data: Json) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path
