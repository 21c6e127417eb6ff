"""More of what is fuzzed with networks: stages that read CLIP's embeddings or go on from kept outputs, and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networks
import yaml
from networks import TARGETS, checkpoint
from results import run
from targets import CODE, OF_RUN, PARAMS, Target, project, stage, write

__all__ = ["TARGETS", "checkpoint"]

CLIP = {
    "encoder": {"model": "local-dir:clip", "template": "a photo of a {}", "device": "cpu"},
    "images": {"batch_size": 8, "workers": 0},
}
CROPS = {"crop": {"kind": "crops", "unknown": "negatives.txt", "min_score": 0.2}}


def _register(name: str, mutable: tuple[str, ...], share: float, *parts: Any) -> None:
    TARGETS[name] = Target(
        *parts, mutable, share, links=name != "stratify"
    )  # NLTK reads no hard links


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
    networks._clip()
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
    evaluate_again()


def evaluate_again() -> None:
    for name in OF_RUN:
        stage(name, "theirs")


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
    run("benchmark", "duplicates", "pets")


def mine() -> None:
    run("benchmark", "negatives", "pets", "out.txt", "--wordnet", "similarity.yaml", "--count", "2")


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
    networks._bundle()
    for name in ("a.png", "b.jpg", "c/d.png"):
        write({f"photos/{name}": (60, 40)})


RUNS = ("artifacts/regions/theirs/**/*", "artifacts/splits/**/*")
SPLITS, TABLES = "artifacts/splits/**/*", "artifacts/tables/**/*"
KEPT = (
    "artifacts/choices/**/*", "artifacts/evaluation/**/*", "artifacts/fitted/**/*", "artifacts/records/**/*",
    "artifacts/recovered/**/*", "artifacts/scores/**/*", "artifacts/thresholds/*", "artifacts/truth/*",
)  # fmt: skip
EMBEDDED = ("artifacts/embeddings/**/*", TABLES, SPLITS, "similarity.yaml", "params.yaml")
MINED = ("params.yaml", SPLITS, "similarity.yaml", "rules.yaml")
CUT_OUT = ("negatives.txt", "clip/*.json", *RUNS, "pets/test/*.png")
PREDICT = "predict bundle photos --out out --device cpu --window 2"
_register("crops", CUT_OUT, 0.4, with_crops, lambda: stage("infer", "theirs"))
_register(
    "crops_again", ("artifacts/passes/**/*", "negatives.txt", *RUNS), 0.15, crops_again, fit_crops
)
_register("negatives", MINED, 0.3, lambda: with_clip("infer"), mine)
_register("stratify", EMBEDDED, 0.4, similar, stratify)
_register("kept", KEPT, 0.3, kept, evaluate_again)
_register("predict", ("photos/**/*",), 0.25, predicted, lambda: run(*PREDICT.split()))
_register("training_state", ("state.pt",), 0.2, training_state, resume)
