"""Projects with an untrained CLIP, and the stages and commands that read its embeddings.

Beside them, what goes on from kept outputs: an evaluation, a training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from tests.disturbed.valid import networks
from tests.disturbed.valid.files import write
from tests.disturbed.valid.projects import CODE, PARAMS, farther, project, run_methods, stage

CLIP = {
    "encoder": {"model": "local-dir:clip", "template": "a photo of a {}", "device": "cpu"},
    "images": {"batch_size": 8, "workers": 0},
}
CROPS = {"crop": {"kind": "crops", "unknown": "negatives.txt", "min_score": 0.2}}


def _params(**sections: Any) -> None:
    """Writes params.yaml with other sections, and the digests of the code of their methods."""
    made = {**PARAMS, **sections}
    of_methods = dict.fromkeys(made["methods"], "x")
    digests = {**CODE["kept"], "fit": of_methods, "score": of_methods}
    files = {**CODE["files"], "methods": of_methods}
    write(
        {
            "params.yaml": yaml.safe_dump(made, sort_keys=False),
            "artifacts/code.json": {**CODE, "kept": digests, "files": files},
        }
    )


def with_clip(until: str, **sections: Any) -> None:
    """A project with an untrained CLIP and other sections of params.yaml; its stages are run before the one named `until`."""
    project(until)
    networks.clip()
    Path("m").rename("clip")
    _params(embed=CLIP, inference={"workers": 0}, **sections)
    write({"negatives.txt": "# mined\ntable\nblue box\n\nlamp\n"})


def with_crops() -> None:
    """A project whose run has a pass over crops that was not made yet."""
    theirs = {**PARAMS["detectors"]["theirs"], "passes": CROPS}
    on_crops = {name: {"pass": "crop"} for name in ("mcm", "neg_label")}
    with_clip("fit", detectors={"theirs": theirs}, methods={**on_crops, "msp": {}})


def crops_again() -> None:
    with_crops()
    stage("infer", "theirs")


def fit_crops() -> None:
    stage("infer", "theirs")
    run_methods()


def similar() -> None:
    """A project whose images are embedded and stratified."""
    from tests.similarity.tiny_wordnet import write as write_wordnet

    with_clip("infer", stratify={"borderline": 3, "wordnet": {"folder": "dict"}})
    write_wordnet(Path("dict"))
    stage("embed")
    stage("stratify")


def stratify() -> None:
    stage("embed")
    stage("stratify")
    farther("benchmark", "duplicates", "pets")


def mine() -> None:
    farther(
        "benchmark", "negatives", "pets", "out.txt", "--wordnet", "similarity.yaml", "--count", "2"
    )


def kept() -> None:
    """An evaluated project with one more method: all others are read from the kept parts."""
    project("report")
    _params(methods={**PARAMS["methods"], "energy": {}})


def training_state() -> None:
    """The state of an unfinished training."""
    import torch

    from farther_training.run import write_state

    write_state(
        Path("state.pt"),
        {"identity": "x", "epoch": 3, "model": {"a": torch.zeros(3)}, "log": [{"loss": 0.5}]},
    )


def resume() -> None:
    from farther_training.run import read_state

    read_state(Path("state.pt"), "x")


def predicted() -> None:
    networks.bundle()
    for name in ("a.png", "b.jpg", "c/d.png"):
        write({f"photos/{name}": (60, 40)})
