"""Runs a detector over the splits of its benchmark that changed, or imports what another program detected in them.

Then it looks again at what the detector found, in the passes that the run's entry asks for.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import polars as pl

from farther import detectors
from farther.datasets import image_roots
from farther.detectors.imported import BenchmarkImage, Imported, import_splits
from farther.detectors.inference import TRAINING, InferenceParams, ProposalFolders, infer_splits
from farther.detectors.known_classes import check_classes
from farther.detectors.passes import infer_passes, read_passes
from farther.detectors.proposals import ImportedBoxes, read_sources, selections
from farther.errors import ParameterError
from farther.params import run_entry, section
from farther.pipeline.adoption import withdraw_if_changed
from farther.registry import build
from farther.stage import run_stage
from farther.tables.files import is_file
from farther.tables.parquet import read_parquet
from farther.tables.schema import read_typed
from farther.terminal import say

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/regions/{}"


def main(run: str) -> None:
    """Reads `detectors.RUN`, `inference`, roots of `datasets`.

    Writes artifacts/{regions,proposals,passes}/RUN.
    """
    withdraw_if_changed("infer", run)
    entry = run_entry(run)
    detector = detectors.of_entry(entry)
    roots = image_roots(section("datasets"), ARTIFACTS / "tables")
    params = build(InferenceParams, "params.yaml: inference", section("inference"))
    log = partial(say, flush=True)
    splits = ARTIFACTS / "splits" / entry["benchmark"]
    out = ARTIFACTS / "regions" / run
    work = ARTIFACTS / ".work" / "regions" / run
    passes = read_passes(run, entry["passes"], (section().get("embed") or {}).get("encoder"))
    names = entry["classes"]
    sources = read_sources(run, entry["proposals"])
    proposals = ARTIFACTS / "proposals" / run, selections(run, sources, detector)
    boxes = {name: source for name, source in sources.items() if isinstance(source, ImportedBoxes)}
    id_classes = read_typed(list[str], splits / "id_classes.json")
    absent = check_classes(detector.header(), names, id_classes, _unknown_classes(splits))
    if absent:
        log(
            f"{run} does not have the ID classes {', '.join(absent)}: it finds none of their objects"
        )
    if isinstance(detector, Imported):
        import_splits(
            detector,
            splits,
            out,
            work,
            params.shard_images,
            classes=names,
            roots=roots,
            left_out=left_out_images(splits),
            log=log,
        )
        ProposalFolders(*proposals, {}).delete_removed()
    else:
        infer_splits(
            detector, splits, roots, out, work, params, classes=names, proposals=proposals, log=log
        )
    for name, source in boxes.items():
        place = proposals[0] / name
        unfinished = ARTIFACTS / ".work" / "proposals" / run / name
        try:
            import_splits(
                source.reader,
                splits,
                place,
                unfinished,
                params.shard_images,
                without=(TRAINING,),
                roots=roots,
                left_out=left_out_images(splits),
                log=log,
            )
        except ParameterError as error:
            raise ParameterError(f"detectors.{run}.proposals.{name}: {error}") from None
    again = ARTIFACTS / "passes" / run
    unfinished = ARTIFACTS / ".work" / "passes" / run
    infer_passes(
        detector, passes, splits, roots, out, again, unfinished, params, classes=names, log=log
    )


def _unknown_classes(splits: Path) -> list[str]:
    """Classes of the ID dataset that a benchmark's division takes for unknown.

    None without a division.
    """
    file = splits / "unknown_classes.json"
    if not is_file(file):
        return []
    return read_typed(list[str], file)


def left_out_images(splits: Path) -> list[BenchmarkImage]:
    """The images of the OOD sources that the rules of the benchmark left out of all splits.

    Args:
        splits: Folder of the benchmark's splits, with the fate of each image.
    """
    file = splits / "fates.parquet"
    if not is_file(file):
        return []
    fates = read_parquet(file)
    if "file" not in fates.columns:
        return []
    removed = fates.filter(pl.col("fate") == "removed", pl.col("file") != "")
    columns = removed.select("image_id", "dataset", "file")
    return [
        BenchmarkImage(image_id, dataset, name, "", "")
        for image_id, dataset, name in columns.iter_rows()
    ]


if __name__ == "__main__":
    run_stage(main, OUTPUT)
