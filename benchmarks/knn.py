"""Time and memory of kNN with 10⁶ stored vectors, beside FAISS alone.

Measures the exact search and the search by an approximate index.

    python benchmarks/knn.py DIR
        10⁶ × 256 stored; 2.5 GB of disk in DIR, deleted afterwards
    python benchmarks/knn.py DIR --stored 100000 --width 1024

Both sides read the same tables of regions, FAISS by PyArrow. Each is a process of its own, which
fits (FAISS: normalises, trains and adds) and then scores a sample of queries. Seconds are those of
the processor, multiplied to 10⁶ queries, as the time of a query does not depend on the others.
FAISS alone gives the distance to the k-th neighbour by `IndexFlatL2`, or by `IndexIVFFlat` with √M
cells of which 16 are searched, as farther's index.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

K, PROBES, CLASSES = 10, 16, 20
SHARD = 65_536
#: Queries that are measured, and that seconds are multiplied to.
SAMPLE = {"exact": 2_048, "approximate": 16_384}
QUERIES = 1_000_000
SIDES = ("farther", "faiss")
#: By turns, of which the least counts: the first process to touch a page of a virtual machine's
#: memory waits for it.
ROUNDS = 3


def vectors(count: int, width: int, seed: int) -> Iterator[np.ndarray]:
    """Rectified features around one centre per class, a shard at a time, float32."""
    centres = np.maximum(np.random.default_rng(0).normal(0.3, 0.6, (CLASSES, width)), 0).astype(
        np.float32
    )
    rng = np.random.default_rng(seed)
    for start in range(0, count, SHARD):
        rows = min(SHARD, count - start)
        noise = rng.standard_normal((rows, width), dtype=np.float32) * np.float32(0.4)
        yield np.maximum(centres[rng.integers(CLASSES, size=rows)] + noise, 0)


def write(folder: Path, stored: int, width: int) -> None:
    """The stored vectors and the queries."""
    from farther.tables import Header, Regions, RegionsWriter

    header = Header(
        tuple(f"class {k}" for k in range(CLASSES)), detector={"name": "drawn", "width": width}
    )
    for name, count in (("stored", stored), ("queries", max(SAMPLE.values()))):
        writer = RegionsWriter(folder / name, header)
        for number, features in enumerate(vectors(count, width, seed=len(name))):
            rows = len(features)
            regions = Regions(
                header=header,
                image_id=np.full(rows, f"shard {number}", dtype=object),
                region_id=np.arange(rows),
                box=np.tile(np.array([0, 0, 1, 1], np.float32), (rows, 1)),
                score=np.ones(rows),
                label=np.zeros(rows, dtype=np.int16),
                features=features,
            )
            writer.write_shard(number, regions, 1)
        writer.close(-(-count // SHARD))


def farther(folder: Path, index: str) -> np.ndarray:
    """Fits kNN and scores the queries; returns the scores, and prints the seconds of both."""
    from farther.methods import create
    from farther.tables import RegionsFolder

    method = create("knn", k=K, index=index, probes=PROBES)
    start = time.process_time()
    method.fit(RegionsFolder(folder / "stored"))
    if index == "approximate":  # the index is built when it is first asked
        method.score(next(RegionsFolder(folder / "queries").batches(["features"]))[:K])
    fitted = time.process_time()
    parts, left = [], SAMPLE[index]
    for batch in RegionsFolder(folder / "queries").batches(["features"]):
        parts.append(method.score(batch[:left]))
        left -= len(parts[-1])
        if left <= 0:
            break
    report(fitted - start, time.process_time() - fitted, getattr(method, "recall_", 0.0))
    return np.concatenate(parts)


def faiss_alone(folder: Path, index: str) -> np.ndarray:
    """The same by FAISS."""
    import faiss
    import pyarrow.parquet as pq

    def parts_of(name: str, most: int) -> Iterator[np.ndarray]:
        """The first rows of a table, some thousand at a time, with norm 1."""
        for path in sorted((folder / name).glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(16_384, columns=["features"]):
                array = np.array(batch.column(0).flatten()).reshape(len(batch), -1)[:most]
                faiss.normalize_L2(array)
                most -= len(array)
                yield array
                if not most:
                    return

    start = time.process_time()
    files = [pq.ParquetFile(path) for path in sorted((folder / "stored").glob("*.parquet"))]
    count, width = (
        sum(f.metadata.num_rows for f in files),
        files[0].schema_arrow.field("features").type.list_size,
    )
    found: faiss.Index = faiss.IndexFlatL2(width)
    if index == "approximate":
        cells = round(count**0.5)
        flat = found  # must outlive the index that searches its cells by it
        found = faiss.IndexIVFFlat(flat, width, cells)
        found.cp.niter, found.cp.max_points_per_centroid, found.nprobe = 5, 64, PROBES
        found.train(
            np.concatenate(list(parts_of("stored", 64 * cells)))
        )  # they are in random order
    for part in parts_of("stored", count):
        found.add(part)
    fitted = time.process_time()
    parts = [found.search(part, K)[0][:, -1] for part in parts_of("queries", SAMPLE[index])]
    report(fitted - start, time.process_time() - fitted, 0.0)
    return -np.sqrt(np.concatenate(parts))


def report(fit: float, score: float, recall: float) -> None:
    """Prints the seconds for the process that started this one."""
    print(json.dumps({"fit": fit, "score": score, "recall": recall}))


def measured(folder: Path, side: str, index: str) -> dict[str, float]:
    """Processor seconds to fit, to score the sample and in all, and the peak memory in GiB."""
    command = [sys.executable, __file__, str(folder), "--side", side, "--index", index]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{side} failed: {index}")
    seconds = json.loads(printed.splitlines()[-1])
    return {**seconds, "memory": used.ru_maxrss / 2**20, "cpu": used.ru_utime + used.ru_stime}


def main() -> None:
    """Measures both sides with both indexes, prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    for name, default in (("stored", 1_000_000), ("width", 256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--side", choices=SIDES, help="one side alone, in this process")
    parser.add_argument("--index", choices=tuple(SAMPLE), default="exact")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--indexes", nargs="+", choices=tuple(SAMPLE), default=list(SAMPLE), help="only these"
    )
    asked = parser.parse_args()
    if asked.side is not None:
        scores = {"farther": farther, "faiss": faiss_alone}[asked.side](asked.folder, asked.index)
        np.save(asked.folder / f"{asked.side}-{asked.index}.npy", scores)
        return
    folder = asked.folder / "knn"
    folder.mkdir(parents=True)
    write(folder, asked.stored, asked.width)
    print(
        f"{asked.stored:,} × {asked.width} stored, k = {K}; "
        f"score: seconds for {QUERIES:,} queries\n"
    )
    print(
        "| index | side | fit | score | processor s | GiB |\n"
        "| --- | --- | ---: | ---: | ---: | ---: |"
    )
    for index in asked.indexes:
        sample = SAMPLE[index]
        rounds: list[dict[str, dict[str, float]]] = []
        for _ in range(asked.rounds):
            rounds.append({side: measured(folder, side, index) for side in SIDES})
        found: dict[str, dict[str, float]] = {}
        for side in SIDES:
            names = rounds[0][side]
            found[side] = {name: min(one[side][name] for one in rounds) for name in names}
        for side, of in found.items():
            whole = of["score"] * QUERIES / sample
            print(
                f"| {index} | {side} | {of['fit']:.1f} s | {whole:,.0f} s | {of['cpu']:.0f} "
                f"| {of['memory']:.2f} |"
            )
        ours, theirs = found.values()
        ratios = " | ".join(
            f"{ours[name] / theirs[name]:.2f}" for name in ("fit", "score", "cpu", "memory")
        )
        first, second = (np.load(folder / f"{side}-{index}.npy") for side in SIDES)
        recall = f", recall {ours['recall']:.3f}" if ours["recall"] else ""
        print(f"| {index} | ratio{recall} | {ratios} |")
        print(
            f"<!-- {sample:,} queries measured; "
            f"largest difference {np.abs(first - second).max():.1e} -->",
            flush=True,
        )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
