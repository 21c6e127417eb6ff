"""Writes the reference of all methods, from their docstrings and fields: `python -m farther.methods.document`."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from farther.methods.base import METHODS, Method

NEEDS = {
    "logits": "logits",
    "labels": "the predicted class",
    "features": "features (the input of the last linear layer)",
    "latent": "latent activations (ROI-aligned, averaged a channel)",
    "uncertainty": "the detector's own uncertainty",
    "last_layer": "weight and bias of the last layer",
    "model": "the detector itself, run again while scores are computed",
}

INTRODUCTION = """# Methods

<!-- Written by `python -m farther.methods.document > docs/methods.md`: edit the docstrings, not this file. -->

A method gives each region one score; **higher means more in-distribution**. Write its name under `methods:` in
`params.yaml`, with the parameters that should differ from their defaults, or in Python:

```python
from farther import methods

method = methods.create("knn", k=10).fit(train_regions)
scores = method.score(test_regions)
tau = methods.threshold(method.score(validation_regions), keep=0.95)
```

Where the benchmark's paper and the code published with it differ, `protocol="paper"` is the default and
`protocol="published-code"` does what the code does. FMIYC is that paper, "Find Me If You
Can". Symbols: c the logits, C the number of classes, p probabilities,
z the features, w and b weight and bias of the last layer, y the predicted class.

"""

CHOOSING = """## Choosing parameters

The name of a line under `methods:` may be any; `method` then says which method is meant, so that one method may be
compared with itself:

```yaml
methods:
  gen: {}
  gen_published: {method: gen, protocol: published-code}
  knn_chosen: {search: {ood_split: coco_choose, grids: {knn: {k: [1, 10, 50]}}}}
  lard_best: {oracle: {ood_split: coco_far, grids: {lard_knn: {components: [8, 32]}, lard_gmm: {components: [8, 32]}}}}
```

`search` fits every combination on the training split and keeps the one with the best AUROC of ID validation regions
against those of an OOD split on which no result is reported: one that the benchmark marks `use: validation`. A split
that results are reported on is refused. `oracle` takes such a split, as the "best of" of published tables does. The
fitted method's `method.json` lists all trials, and the report says how the parameters were chosen and which are an
oracle's.

"""

ADDING = '''## Adding a method

Write `data/methods/<name>.py` in your project, and `<name>: {}` under `methods:` in `params.yaml`: `dvc repro` fits,
scores and evaluates it, and nothing else runs again. Where you work in Python, importing the file is enough. The
parameters are fields, what is learned is stored in attributes whose names end in `_`.

```python
from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, register
from farther.methods.logits import ClassesMethod, class_logits
from farther.registry import STRICT
from farther.tables import Regions


@register("sharpness")
@dataclass(config=STRICT, kw_only=True)
class Sharpness(ClassesMethod):
    """The largest logit, by the spread of the training regions' largest logits.

    Formula:
        score = max_c c_c / σ

    Source:
        Nobody; an example.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def _fit(self, regions: RegionsLike) -> None:
        largest = [class_logits(batch, self.background).max(axis=1) for batch in self._batches(regions)]
        self.spread_ = float(np.concatenate(largest).std())

    def _score(self, regions: Regions) -> np.ndarray:
        return class_logits(regions, self.background).max(axis=1) / self.spread_
```

A method that should come with farther lies in `lib/farther/methods/<name>.py`; what several share is in
`lib/farther/methods/parts`. The docstring's sections are this page's, and `tests/methods/test_every_method.py` holds
for it too: sign, saving, streaming, difficult regions. Its formula wants a test of its own.
'''

NOT_HERE = """## Methods that run the detector

The pipeline scores what a detector stored about a region; it does not run it again. A name that pretended to be one of
these would be worse than none:

- **ODIN** and other scores that step along the gradient of the image. Its temperature alone is `temperature_scaling`
  with T = 1000.
- **Monte Carlo dropout** and **ensembles**, which want several runs. Where a detector was run so elsewhere, its
  spread of boxes is the column `box_variance`, and its uncertainty is scored by [`uncertainty`](#uncertainty).
- **Gram matrices** and others that read several layers.

Such a method can be written and called from Python: derive it from `farther.methods.parts.network.NetworkMethod`, which
needs `model`, and write `_score_with(regions, network)`; then `method.score(regions, network=network)`, where `network`
is any function that gives the same rows with what the detector makes of them in one more run. In `params.yaml` its line
is marked as not applicable, with this reason, and the other methods go on.
"""


def reference() -> str:
    """The whole page, in Markdown."""
    names = METHODS.names()
    table = ["| name | what it is | needs |", "| --- | --- | --- |"]
    for name in names:
        cls = METHODS.get(name)
        needs = ", ".join(f"`{need}`" for need in sorted(cls.needs))
        table.append(f"| [`{name}`](#{name}) | {sections(cls)['']} | {needs} |".replace("\n", " "))
    legend = "\n".join(f"- `{need}`: {text}" for need, text in NEEDS.items())
    parts = [INTRODUCTION + "\n".join(table), f"What a method needs:\n\n{legend}", _logits_rule()]
    return "\n\n".join([*parts, *(_entry(name) for name in names), CHOOSING + ADDING, NOT_HERE])


def _logits_rule() -> str:
    import farther.methods.logits as logits

    text = inspect.getdoc(logits) or ""
    return "## Background and sigmoid heads\n\n" + text.partition("\n\n")[2]


def _entry(name: str) -> str:
    cls = METHODS.get(name)
    written = sections(cls)
    lines = [f"## {name}", written[""]]
    if written.get("more"):
        lines.append(written["more"])
    lines += [f"> {_flat(written['Formula'])}", f"Source: {_flat(written['Source'])}"]
    rows = [f"| `{name}` | `{default}` | {description} |" for name, default, description in parameters(cls)]
    if rows:
        lines.append("\n".join(["| parameter | default | |", "| --- | --- | --- |", *rows]))
    return "\n\n".join(lines)


def parameters(cls: type[Method]) -> list[tuple[str, str, str]]:
    """Name, default and description of each parameter of a method; "" where nobody described it."""
    descriptions = _descriptions(cls)
    fields = [field for field in dataclasses.fields(cls) if field.init]
    return [(field.name, _shown(field.default), descriptions.get(field.name, "")) for field in fields]


def sections(cls: type) -> dict[str, str]:
    """A docstring by section: "" the first sentence, "more" what follows, then "Formula", "Source", "Args"."""
    head, *rest = re.split(r"^(Formula|Source|Args):\n", inspect.cleandoc(cls.__doc__ or ""), flags=re.MULTILINE)
    first, _, more = head.strip().partition("\n\n")
    found = {"": _flat(first), "more": more.strip()}
    return found | {title: inspect.cleandoc(text) for title, text in zip(rest[::2], rest[1::2], strict=True)}


def _descriptions(cls: type[Method]) -> dict[str, str]:
    """What each parameter is: from the class that says so, its own docstring before those it is made of."""
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        text = sections(owner).get("Args", "") if owner.__module__.startswith("farther.methods") else ""
        for name, description in re.findall(r"^(\w+): (.+(?:\n +.+)*)", text, flags=re.MULTILINE):
            found[name] = _flat(description)
    return found


def _shown(default: Any) -> str:
    return "null" if default is None else str(default)


def _flat(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    print(reference(), end="")
