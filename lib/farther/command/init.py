"""`farther init`: a project for a user's photographs, labels and detector."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from farther.command.project import Project, argument, option
from farther.errors import ParameterError


def init(
    folder: Annotated[Path, argument("FOLDER", "Folder of the project.")] = Path(),
    id: Annotated[Path | None, option("DIR", "The ID dataset: what the detector knows.")] = None,
    ood: Annotated[list[Path] | None, option("DIR", "An OOD dataset, repeatable.")] = None,
    detector: Annotated[Path | None, option("FILE", "Checkpoint, or detections.")] = None,
    wordnet: Annotated[Path | None, option("DIR", "WordNet's dict folder: synonyms, near categories.")] = None,
    clip: Annotated[str | None, option("MODEL", "CLIP of open_clip: near categories.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace params.yaml and the rules file.")] = False,
    pipeline: Annotated[bool, typer.Option("--pipeline", help="Only write dvc.yaml anew, for this version.")] = False,
) -> None:
    """Make a project for your photographs, labels and detector.

    Recognises YOLO folders, COCO JSON, VOC-style XML (LabelImg, Roboflow) and folders of images per class; checkpoints
    (Ultralytics, torchvision, Detectron2, transformers) and detections in COCO's format. Writes params.yaml, a rules
    file that says which categories the detector knows, and an empty file of decisions; every proposal has a comment
    and can be edited. A new folder also gets the pipeline, git and DVC. What is not given is asked for. With --wordnet
    or --clip, categories that are near to an ID class are proposed; MODEL is local-dir:FOLDER, hf-hub:OWNER/NAME, or
    ARCHITECTURE:WEIGHTS.

    \b
    Examples:
      farther init project --id pets --ood wild --detector best.pt
      farther init --force --id pets --ood wild --ood street --detector r.json
      farther init --id a --ood b --detector d.pt --wordnet /usr/share/wordnet
    """
    from farther.pipeline import ROOT, write_pipeline
    from farther.projects import init as make

    if pipeline:
        write_pipeline(folder, clip=bool(Project(folder / "params.yaml").section("embed")))
        print(f"wrote {folder / 'dvc.yaml'}; `farther doctor` checks it")
        return
    given = {"--id": id, "--ood": ood, "--detector": detector}
    if lacking := [name for name, value in given.items() if not value]:
        if not sys.stdin.isatty():
            raise ParameterError(f"give {', '.join(lacking)}")
        id = id or Path(typer.prompt("Folder of the ID dataset (what the detector knows)"))
        ood = ood or [Path(path) for path in typer.prompt("Folders of OOD datasets, with blanks between").split()]
        detector = detector or Path(typer.prompt("Checkpoint, or file of detections"))
    assert id is not None and ood and detector is not None
    new = not (folder / "dvc.yaml").exists()
    make(folder, id, ood, detector, names=ROOT / "data", wordnet=wordnet, clip=clip, force=force)
    if new:
        begin(folder)
        write_pipeline(folder, clip=False)
    place = "" if folder == Path() else f"cd {folder}; "
    print(f"Look at the rules file, then: {place}farther doctor; dvc repro {'report' if not new else ''}".rstrip())


def begin(folder: Path) -> None:
    """Starts git and DVC in a folder where they are not."""
    for wanted, command in ((".git", ["git", "init", "-q"]), (".dvc", [sys.executable, "-m", "dvc", "init", "-q"])):
        if (folder / wanted).exists():
            continue
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or error
            print(f"{' '.join(command)} failed: {reason}".rstrip(), file=sys.stderr)
