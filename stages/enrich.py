"""Chooses candidates for a benchmark's splits from larger pools: `python stages/enrich.py voc`.

No stage of the pipeline: it writes data/candidates/NAME.csv, which git keeps and people review.
"""

import sys
from pathlib import Path

from farther.curation import TablesFolder, benchmark
from farther.curation.candidates import write_candidates
from farther.errors import FartherError
from farther.params import section
from farther.similarity import Lookalikes, not_embedded
from farther.tools.enrichment import describe, enrichment, find, images_by_subset, present

ARTIFACTS = Path("artifacts")


def main(name: str) -> None:
    """Reads `enrich.NAME`, `benchmarks.NAME`, the tables and, where there are some, the embeddings."""
    made = benchmark(name, section("benchmarks", name))
    params = enrichment(name, section("enrich", name))
    tables, embeddings = TablesFolder(ARTIFACTS / "tables"), ARTIFACTS / "embeddings"
    splits = present(made, tables)
    known = images_by_subset(made, splits)
    ids = [(made.id, subset) for subset in made.subsets.values()]
    absent = not_embedded(embeddings, [*ids, *known, *((pool.dataset, pool.subset) for pool in params.pools)])
    if absent:
        print(f"No embeddings of {', '.join(absent)}: only equal files are left out, not near-duplicates.")
    looks = None if absent else Lookalikes(embeddings, ids, known, params.duplicate)
    found = find(params, made, tables, splits, looks)
    write_candidates(params.file, found.candidates)
    print(describe(found), f"Written: {params.file}", sep="\n")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except FartherError as error:
        sys.exit(f"enrich: {error}")
