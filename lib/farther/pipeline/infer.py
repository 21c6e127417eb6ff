"""Runs a detector over the splits of its benchmark that changed, or imports its detections.

Then it runs the extra inference that the run's entry configures as `passes`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import polars as pl

from farther import detectors
from farther.datasets import image_roots
from farther.detectors.imported import BenchmarkImage, Imported, import_splits
from farther.detectors.inference import InferenceParams
from farther.detectors.known_classes import check_classes
from farther.detectors.passes import SharedPasses, infer_passes, read_passes
from farther.detectors.proposal_sources import ImportedBoxes, read_sources, selections
from farther.detectors.split_inference import TRAINING, ProposalFolders, infer_splits
from farther.errors import ParameterError
from farther.naming.registry import build
from farther.params import run_entry, section
from farther.stage import run_stage
from farther.tables.files import is_file
from farther.tables.parquet import read_parquet
from farther.tables.schema import read_typed
from farther.text.terminal import say

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/regions/{}"


def main(run: str) -> None:
    """Reads `detectors.RUN`, `inference`, roots of `datasets`.

    Writes artifacts/{regions,proposals,passes}/RUN.
    """
    entry = run_entry(run)
    detector = detectors.of_entry(entry)
    roots = image_roots(section("datasets"), ARTIFACTS / "tables")
    params = build(InferenceParams, "params.yaml: inference", section("inference"))
    log = partial(say, flush=True)
    splits = ARTIFACTS / "splits" / entry["benchmark"]
    regions = ARTIFACTS / "regions" / run
    regions_work = ARTIFACTS / ".work" / "regions" / run
    encoder = (section().get("embed") or {}).get("encoder")
    passes = read_passes(run, entry["passes"], encoder)
    class_names = entry["classes"]
    sources = read_sources(run, entry["proposals"])
    proposals = ARTIFACTS / "proposals" / run
    proposal_selections = selections(run, sources, detector)

    id_classes = read_typed(list[str], splits / "id_classes.json")
    unknown_classes = _unknown_classes(splits)
    absent = check_classes(detector.header(), class_names, id_classes, unknown_classes)
    if absent:
        log(
            f"{run} does not have the ID classes {', '.join(absent)}: "
            "it finds none of their objects"
        )

    if isinstance(detector, Imported):
        import_splits(
            detector,
            splits,
            regions,
            regions_work,
            params.shard_images,
            classes=class_names,
            roots=roots,
            left_out=left_out_images(splits),
            log=log,
        )
        ProposalFolders(proposals, proposal_selections, {}).delete_removed()
    else:
        infer_splits(
            detector,
            splits,
            roots,
            regions,
            regions_work,
            params,
            classes=class_names,
            proposals=(proposals, proposal_selections),
            passes=SharedPasses(detector, passes, regions, ARTIFACTS / "passes" / run, params),
            log=log,
        )

    for name, source in sources.items():
        if not isinstance(source, ImportedBoxes):
            continue
        try:
            import_splits(
                source.reader,
                splits,
                proposals / name,
                ARTIFACTS / ".work" / "proposals" / run / name,
                params.shard_images,
                without=(TRAINING,),
                roots=roots,
                left_out=left_out_images(splits),
                log=log,
            )
        except ParameterError as error:
            raise ParameterError(f"detectors.{run}.proposals.{name}: {error}") from None

    infer_passes(
        detector,
        passes,
        splits,
        roots,
        regions,
        ARTIFACTS / "passes" / run,
        ARTIFACTS / ".work" / "passes" / run,
        params,
        classes=class_names,
        log=log,
    )


def _unknown_classes(splits: Path) -> list[str]:
    """Classes of the ID dataset that a benchmark's division treats as unknown.

    Empty without a division.
    """
    file = splits / "unknown_classes.json"
    if not is_file(file):
        return []
    return read_typed(list[str], file)


def left_out_images(splits: Path) -> list[BenchmarkImage]:
    """Images of the OOD sources that the rules of the benchmark removed from all splits.

    Args:
        splits: Folder of the benchmark's splits, with the split assignment of each image.
    """
    file = splits / "fates.parquet"
    if not is_file(file):
        return []
    fates = read_parquet(file)
    if "file" not in fates.columns:
        return []
    removed = fates.filter(pl.col("fate") == "removed", pl.col("file") != "")
    return [
        BenchmarkImage(row["image_id"], row["dataset"], row["file"], "", "")
        for row in removed.iter_rows(named=True)
    ]


if __name__ == "__main__":
    run_stage(main, OUTPUT)
