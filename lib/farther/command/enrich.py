"""`farther benchmark enrich`: candidates for a benchmark's splits from larger pools."""

from __future__ import annotations

from farther.command.output import next_step
from farther.command.project import PARAMS, BenchmarkName, Params, Project
from farther.terminal import say


def enrich(benchmark: BenchmarkName, params: Params = PARAMS) -> None:
    """Choose candidates for a benchmark's splits from pools.

    Reads section 'enrich', the tables and, where they exist, the embeddings. Writes the list of candidates that the
    section names (data/candidates/BENCHMARK.csv), which belongs in git and is reviewed by people.

    \b
    Examples:
      farther benchmark enrich voc
    """
    from farther.curation import TablesFolder
    from farther.curation.candidates import write_candidates
    from farther.curation.enrichment import describe, enrichment, find, images_by_subset, present
    from farther.similarity import Lookalikes, not_embedded

    project = Project(params)
    checked = project.benchmark(benchmark)
    settings = enrichment(benchmark, project.entry("enrich", benchmark))
    tables, embeddings = TablesFolder(project.artifacts / "tables"), project.artifacts / "embeddings"
    splits = present(checked, tables)
    known = images_by_subset(checked, splits)
    ids = list(checked.id_sources.values())
    absent = not_embedded(embeddings, [*ids, *known, *((pool.dataset, pool.subset) for pool in settings.pools)])
    if absent:
        say(f"No embeddings of {', '.join(absent)}: only identical files are excluded, not near-duplicates.")
    looks = None if absent else Lookalikes(embeddings, ids, known, settings.duplicate)
    found = find(settings, checked, tables, splits, looks)
    assert settings.file is not None  # `enrichment` fills it in
    write_candidates(settings.file, found.candidates)
    say(describe(found), f"Written: {settings.file}", sep="\n")
    next_step(f"a split with `candidates: {settings.file}`, then farther benchmark review {benchmark}")
