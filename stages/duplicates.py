"""Lists near-duplicate images of a benchmark as CSV: `python stages/duplicates.py voc > duplicates.csv`.

No stage of the pipeline. Pairs within and across the OOD splits and all images of the ID dataset's subsets, those that
the benchmark's ID splits leave out included: a detector may have learned from them.
"""

import argparse
import csv
import sys
from pathlib import Path

from farther.curation import benchmark
from farther.errors import FartherError
from farther.params import section
from farther.registry import build
from farther.similarity import SimilarityFiles, SplitSource, StratifyParams, near_duplicates

ARTIFACTS = Path("artifacts")


def main(arguments: list[str]) -> None:
    """Reads `benchmarks.NAME`, `stratify`, the ID tables, the OOD splits and all their embeddings."""
    parser = argparse.ArgumentParser(description="Lists near-duplicate images of a benchmark as CSV.")
    parser.add_argument("benchmark", help="name of the benchmark in params.yaml")
    parser.add_argument("--cosine", type=float, help="the lowest of a pair (stratify.duplicate of params.yaml)")
    given = parser.parse_args(arguments)
    made = benchmark(given.benchmark, section("benchmarks", given.benchmark))
    settings = {name: value for name, value in section("stratify").items() if name != "wordnet"}
    params = build(StratifyParams, "params.yaml: stratify", settings)
    cosine = params.duplicate if given.cosine is None else given.cosine
    embeddings = ARTIFACTS / "embeddings"
    id_files = SimilarityFiles(ARTIFACTS / "tables" / made.id, embeddings)
    splits = [id_files.split(SplitSource(subset, made.id, subset, "ID")) for subset in made.subsets.values()]
    files = SimilarityFiles(ARTIFACTS / "splits" / given.benchmark, embeddings)
    for name, split in made.splits.items():
        splits.append(files.split(SplitSource(name, split.dataset, split.subset, split.distance)))
    pairs, count = near_duplicates(splits, cosine, params.duplicate_pairs)
    columns = pairs.columns()
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(columns)
    for *names, value, same_file in zip(*columns.values(), strict=True):
        rows.writerow((*names, f"{value:.4f}", "yes" if same_file else "no"))
    print(f"{count} pairs of a cosine of at least {cosine:g}, {len(pairs)} listed", file=sys.stderr)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except FartherError as error:
        sys.exit(f"duplicates: {error}")
