"""`farther bundle`: a method of a run with its detector, for where it is deployed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from farther.command.project import PARAMS, Params, Project, argument
from farther.errors import choose


def bundle(
    run: Annotated[str, argument("RUN", "A run that was evaluated.", "detectors")],
    method: Annotated[str, argument("METHOD", "One of its methods.", "methods")],
    out: Annotated[Path, argument("OUT", "Folder to write; an earlier bundle there is replaced.")],
    reference_checkpoint: Annotated[
        bool, typer.Option("--reference-checkpoint", help="Refer to the checkpoint instead of copying it.")
    ] = False,
    params: Params = PARAMS,
) -> None:
    """Write a method with its detector as one folder.

    The folder holds the fitted method, the thresholds, calibrators where the run has them, the checkpoint, and what
    validation showed; `farther.Monitor.load` runs it. Nothing is fitted or inferred.

    \b
    Examples:
      farther bundle voc-vos knn deployed
      farther bundle voc-vos knn deployed --reference-checkpoint
    """
    from farther.evaluation.files import RunFiles
    from farther.images.plan import StreamParams
    from farther.monitor import Bundle, BundleSource, write_bundle
    from farther.registry import build
    from farther.scoring.entries import read_entry

    project = Project(params)
    detectors, methods = project.section("detectors"), project.section("methods")
    entry = detectors[choose("run", run, detectors)]
    asked = read_entry(method, methods[choose("method", method, methods)] or {})
    inference = build(StreamParams, "params.yaml: inference", project.section("inference"))
    files = RunFiles(run, entry["benchmark"], project.artifacts)
    write_bundle(BundleSource(files, entry, asked, inference), out, copy=not reference_checkpoint)
    info = Bundle.load(out).info
    seen = info.validation
    print(f"Written: {out} ({run}, {info.method.title}, t* {info.operating:.4g}, τ {info.tau:.4g})")
    print(
        f"On {seen.images} ID validation images it flags {seen.unknown} of {seen.detections} detections as unknown "
        f"and rejects {seen.rejected} images."
    )
    print(f'Try it: python -c "import farther; print(farther.Monitor.load({str(out)!r})({"image.jpg"!r}))"')
