"""Publishes splits of a benchmark: `python stages/publish.py voc OUT --format coco|parquet|huggingface`.

No stage of the pipeline: it reads what `ingest`, `curate` and, if it ran, `stratify` wrote, and writes elsewhere.
"""

import argparse
import sys
from pathlib import Path

from farther.curation import benchmark
from farther.errors import FartherError
from farther.params import section
from farther.tools.publication import FORMATS, Words, collect, publish, read_words

ARTIFACTS = Path("artifacts")


def main(arguments: list[str]) -> None:
    """Reads `benchmarks.NAME`, its splits and the images; writes OUT."""
    parser = argparse.ArgumentParser(description="Publishes splits of a benchmark.")
    parser.add_argument("benchmark", help="name of the benchmark in params.yaml")
    parser.add_argument("out", type=Path, help="folder to write; an earlier publication there is replaced")
    parser.add_argument("--format", required=True, choices=list(FORMATS))
    parser.add_argument("--split", action="append", default=[], metavar="NAME", help="all OOD splits if left out")
    parser.add_argument("--words", type=Path, metavar="FILE", help="YAML with title, licence, answers: docs/publish.md")
    given = parser.parse_args(arguments)
    made = benchmark(given.benchmark, section("benchmarks", given.benchmark))
    words = read_words(given.words) if given.words else Words()
    publication = collect(given.benchmark, made, section("datasets"), ARTIFACTS, given.split, words)
    publish(publication, given.out, given.format)
    for split in publication.splits:
        print(f"{split.name}: {len(split.images):,} images, {len(split.objects):,} objects")
    print(f"Written: {given.out}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except FartherError as error:
        sys.exit(f"publish: {error}")
