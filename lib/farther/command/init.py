"""`farther init`: a project for a user's photographs, labels and detector."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from farther.command.output import next_step
from farther.command.project import Project, argument, option
from farther.errors import ParameterError
from farther.pipeline import ROOT, write_pipeline
from farther.text.terminal import say, working


def init(
    folder: Annotated[Path, argument("FOLDER", "Folder of the project.")] = Path(),
    id: Annotated[
        Path | None, option("DIR", "The ID dataset: the classes that the detector knows.")
    ] = None,
    ood: Annotated[list[Path] | None, option("DIR", "An OOD dataset; repeatable.")] = None,
    detector: Annotated[
        list[Path] | None, option("FILE", "Checkpoint or detections file; repeatable.")
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Add detectors and OOD datasets to a project.")
    ] = False,
    benchmark: Annotated[
        str | None, option("NAME", "With --add: the benchmark, if there are several.", "benchmarks")
    ] = None,
    wordnet: Annotated[
        Path | None, option("DIR", "WordNet's dict folder, for synonyms and near categories.")
    ] = None,
    format: Annotated[
        list[str] | None,
        option("NAME", "Format of folders that fit several (farther list datasets); repeatable."),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        option("NAME", "Adapter of a detector that fits several; repeatable."),
    ] = None,
    clip: Annotated[
        str | None, option("MODEL", "open_clip model that proposes near categories.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace params.yaml and the class mapping.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; print what would be assumed.")
    ] = False,
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Only rewrite dvc.yaml for this version.")
    ] = False,
) -> None:
    """Create a project from your images, labels and detector.

    Recognises YOLO folders, COCO JSON, VOC-style XML (LabelImg, Roboflow), folders of images per
    class, and images without boxes; checkpoints (Ultralytics, torchvision, Detectron2,
    transformers, ONNX) and files of detections (COCO results, CSV, Ultralytics' txt, supervision,
    FiftyOne, MMDetection). Writes params.yaml, a class mapping that says which categories the
    detector knows, and an empty file of decisions, and prints what it assumed, with the lines where
    it can be changed. A new folder also gets the pipeline, git and DVC. Prompts for what is not
    given. With --wordnet or --clip, categories similar to an ID class are proposed.

    \b
    MODEL is local-dir:FOLDER, hf-hub:OWNER/NAME, or ARCHITECTURE:WEIGHTS.

    \b
    Examples:
      farther init project --id pets --ood wild --detector best.pt
      farther init project --add --detector other.onnx --ood street
      farther init --force --id pets --ood wild --ood street --detector r.json
      farther init --dry-run --id a --ood b --detector d.pt --clip ViT-B-32:openai
    """
    with working("starting"):  # which imports much
        from farther import projects

    check = "farther doctor"
    if folder != Path():
        check = f"cd {shlex.quote(str(folder))}; {check}"
    if pipeline:
        _rewrite_pipeline(folder)
        next_step(check)
        return

    lookup = projects.Lookup.open(ROOT / "data", wordnet, clip)
    choices = projects.Choices(tuple(format or ()), tuple(adapter or ()))
    if add:
        if not ood and not detector:
            raise ParameterError("give --ood, --detector, or both")
        project = projects.add(
            folder, ood or (), detector or (), lookup, choices=choices, benchmark=benchmark
        )
    else:
        if not sys.stdin.isatty():
            _check_options(id, ood, detector)
        id_folder = id or _prompt_id()
        ood_folders = ood or _prompt_ood()
        detectors = detector or _prompt_detector()
        project = projects.init(
            folder, id_folder, ood_folders, detectors, lookup, choices=choices, force=force
        )
    if not dry_run:
        if not (folder / "dvc.yaml").exists():
            with working("starting git and DVC"):
                begin(folder)
            write_pipeline(folder, clip=False)
        project.write()
    files = ", ".join(str(folder / name) for name in project.texts)
    say(f"{'would write' if dry_run else 'wrote'} {files}")
    say("What was read and assumed, doubtful points first; edit what is wrong:")
    say("\n".join(project.assumed()))
    next_step("the same command without --dry-run" if dry_run else check)


def _check_options(id: Path | None, ood: list[Path] | None, detector: list[Path] | None) -> None:
    """Raises a ParameterError about the options that a new project needs and that are not given."""
    options = {"--id": id, "--ood": ood, "--detector": detector}
    missing = [name for name, value in options.items() if not value]
    if missing:
        raise ParameterError(f"give {', '.join(missing)}")


def _prompt_id() -> Path:
    return Path(typer.prompt("Folder of the ID dataset (what the detector knows)"))


def _prompt_ood() -> list[Path]:
    answer = typer.prompt("Folders of OOD datasets, separated by spaces")
    return [Path(path) for path in answer.split()]


def _prompt_detector() -> list[Path]:
    return [Path(typer.prompt("Checkpoint or detections file"))]


def _rewrite_pipeline(folder: Path) -> None:
    """Writes dvc.yaml for this version."""
    has_clip = bool(Project(folder / "params.yaml").section("embed"))
    write_pipeline(folder, clip=has_clip)
    say(f"wrote {folder / 'dvc.yaml'}")


def begin(folder: Path) -> None:
    """Starts git and DVC in a folder where they are not."""
    folder.mkdir(parents=True, exist_ok=True)
    commands = {
        ".git": ["git", "init", "-q"],
        ".dvc": [sys.executable, "-m", "dvc", "init", "-q"],
    }
    for name, command in commands.items():
        if (folder / name).exists():
            continue
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or error
            say(f"{' '.join(command)} failed: {reason}".rstrip(), file=sys.stderr)
