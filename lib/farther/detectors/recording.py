"""Records what a PyTorch detector computes while a user's own loop runs it: detections with logits and features.

Hooks keep the output of the modules that are named. Post-processing (thresholds, NMS, the best k)
hides which of a network's candidates (proposals, anchors, queries) a final detection came from: it
is told by the user, or found by the score, which the candidate's logits must give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor, nn

from farther.errors import DataError, ParameterError, shorten
from farther.tables import Header, Regions, RegionsWriter
from farther.tables.header import Activation

#: Images in a file of the folder that is written.
SHARD_IMAGES = 512

#: Detections that are compared with all candidates at once.
AT_ONCE = 32

#: Refused detections that a message names.
NAMED = 3


@dataclass(frozen=True)
class Matching:
    """How detections find the candidates that they came from; see `record` for the fields."""

    call: int | None = None
    tolerance: float = 1e-6
    read: Callable[[Any], Tensor] | None = None


@dataclass(frozen=True)
class Candidates:
    """R candidates of an image, of which detections are some.

    Args:
        logits: Shape (R, K).
        features: Shape (R, D), or None.
    """

    logits: Tensor
    features: Tensor | None


class Tap:
    """Outputs of a module, call by call, since they were last taken.

    Args:
        model: The user's network.
        module: One of its modules, or a name of `named_modules`.
        parameter: What `record` calls it, for messages.

    Attributes:
        keeps_input: Whether the module's input is kept, too.

    Raises:
        ParameterError: the model has no such module.
    """

    def __init__(self, model: nn.Module, module: str | nn.Module, parameter: str):
        self.parameter = parameter
        names = {other: name for name, other in model.named_modules()}
        if isinstance(module, str):
            self.module = _module_of(model, module, parameter)
            self.name = module
        elif module in names:
            self.module = module
            self.name = names[module]
        else:
            problem = f"this {type(module).__name__} is not a module of the model"
            raise ParameterError(
                f"record: parameter {parameter!r}: {problem}; name one of model.named_modules()"
            )
        self.outputs: list[Any] = []
        self.inputs: list[Any] = []
        self.keeps_input = False
        self._hook: Any = None

    def start(self) -> None:
        """Begins to keep outputs."""
        self._hook = self.module.register_forward_hook(self._keep)

    def stop(self) -> None:
        """Keeps no further outputs."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def clear(self) -> None:
        """Forgets the outputs."""
        self.outputs.clear()
        self.inputs.clear()

    def _keep(self, _module: nn.Module, args: tuple, output: Any) -> None:
        self.outputs.append(_copied(output))
        if self.keeps_input:
            self.inputs.append(_copied(args[0]) if args else None)


class Recorder:
    """Takes the detections of one image after the other; see `record`, which makes it.

    Attributes:
        images: Number of images that were added.
    """

    def __init__(
        self,
        header: Header,
        logits: Tap,
        features: Tap | None,
        folder: Path | None,
        matching: Matching,
    ):
        self._header = header
        self._logits = logits
        self._features = features
        self._folder = folder
        self._matching = matching
        self._writer: RegionsWriter | None = None
        self._shards = 0
        self._recorded: list[Regions] = []
        self._names: set[str] = set()
        self._written_images = 0
        self.images = 0

    def __enter__(self) -> Self:
        for tap in self._taps():
            tap.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for tap in self._taps():
            tap.stop()
        if kind is None and self._folder is not None:
            self._write(is_last=True)

    def add(
        self,
        image: str | Sequence[str],
        boxes: Any,
        scores: Any,
        labels: Any,
        rows: Any = None,
    ) -> None:
        """Takes the final detections of the image, or of the batch of images, that the model has just seen.

        Args:
            image: The image's name, as in the images table, or the end of its path; for a batch, a
                list of names.
            boxes: Shape (N, 4): xmin, ymin, xmax, ymax in pixels of the original image. Arrays or
                tensors on any device; for a batch, here and in what follows, a list with one for
                each image.
            scores: Shape (N,), from 0 to 1.
            labels: Columns of the logits, shape (N,); the background's column counts.
            rows: The candidate that each detection came from, shape (N,): an index into the image's
                rows of the logits, or into all rows where logits of shape (R, K) are of a batch; of
                maps in the order of levels, rows, columns and anchors. Left out, it is found by the
                score.

        Raises:
            DataError: a module did not run since the last call, or ran several times; numbers of
                rows do not fit; or it is not certain which candidates the detections came from.
                Nothing of the image is then recorded.
        """
        several = not isinstance(image, str)
        names = [str(name) for name in image] if several else [str(image)]
        given = {"boxes": boxes, "scores": scores, "labels": labels, "rows": rows}
        per_image: list[dict[str, Any]] = [{} for _ in names]
        for field, values in given.items():
            if values is None:
                continue
            parts = list(values) if several else [values]
            if len(parts) != len(names):
                raise DataError(f"{len(names)} images, but {field} of {len(parts)}", field=field)
            for detections, part in zip(per_image, parts, strict=True):
                detections[field] = _tensor(part)
        try:
            candidates = self._candidates(names)
        finally:
            for tap in self._taps():
                tap.clear()
        recorded = []
        for number, name in enumerate(names):
            if name in self._names or name in names[:number]:
                raise DataError(f"image {name!r} was added before", field="image")
            recorded.append(self._regions(name, per_image[number], candidates[number]))
        self._recorded += recorded
        self._names.update(names)
        self.images += len(names)
        if self._folder is not None:
            self._write(is_last=False)

    @property
    def regions(self) -> Regions:
        """All detections so far, as a table; where there is a folder, after the `with` block only.

        Raises:
            DataError: the folder is not written yet.
        """
        if self._folder is not None:
            return Regions.read(self._folder)
        return self._table(self._recorded)

    def _taps(self) -> list[Tap]:
        return [self._logits] if self._features is None else [self._logits, self._features]

    def _table(self, recorded: Sequence[Regions]) -> Regions:
        """Some images' regions together."""
        with_rows = [regions for regions in recorded if len(regions)]
        if not with_rows:
            return Regions.empty(self._header)
        together = Regions.concatenate(with_rows)
        return together.with_columns(region_id=np.arange(len(together)))

    def _write(self, *, is_last: bool) -> None:
        """Writes a file of the folder, if there are enough images for one, and what describes them after the last."""
        assert self._folder is not None
        count = self.images - self._written_images
        if self._writer is None:
            # A key of its own: what an earlier recording left unfinished is not taken up.
            self._writer = RegionsWriter(self._folder, self._header, key=uuid4().hex)
        if count >= SHARD_IMAGES or (is_last and (count or not self._shards)):
            self._writer.write_shard(self._shards, self._table(self._recorded), count)
            self._shards += 1
            self._written_images = self.images
            self._recorded = []
        if is_last:
            self._writer.close(self._shards)

    def _candidates(self, names: Sequence[str]) -> list[Candidates]:
        """The candidates of each image that the model has just seen."""
        logits = self._rows_of(self._logits, self._logits.outputs, names)
        columns = len(self._header.classes)
        for of_image in logits:
            if of_image.shape[1] != columns:
                problem = (
                    f"module {self._logits.name!r} gives {of_image.shape[1]} logits per row, but {columns} classes are "
                    "named, with the background if it has a column"
                )
                raise DataError(problem, field="classes")
        features: list[Tensor | None] = [None] * len(names)
        if self._features is not None:
            features = [*self._rows_of(self._features, self._features.outputs, names)]
        elif self._logits.inputs:
            features = [*self._rows_of(self._logits, self._logits.inputs, names)]
        found = []
        for of_image, vectors in zip(logits, features, strict=True):
            if vectors is not None and len(vectors) != len(of_image):
                assert self._features is not None
                problem = (
                    f"{len(vectors)} rows of module {self._features.name!r}, but {len(of_image)} of "
                    f"{self._logits.name!r}: both must give one row per candidate"
                )
                raise DataError(f"image {names[0]!r}: {problem}", field="features")
            found.append(Candidates(of_image, vectors))
        return found

    def _rows_of(self, tap: Tap, calls: Sequence[Any], names: Sequence[str]) -> list[Tensor]:
        """What a module gave, one row per candidate of each image."""
        what = f"module {tap.name!r}"
        if not calls:
            problem = f"{what} did not run since the image before: call add after the model has seen the image"
            raise DataError(
                f"image {names[0]!r}: {problem}, and name a module that it uses",
                field=tap.parameter,
            )
        is_logits = calls is self._logits.outputs
        read: Callable[[Any], Any] = _first_tensor
        if is_logits and self._matching.read is not None:
            read = self._matching.read
        tensors = [read(output) for output in calls]
        expected = "(rows, values) or (images, rows, values)"
        if is_logits:
            expected += ", or maps (images, anchors × classes, height, width)"
        for tensor in tensors:
            shape: Any = type(tensor).__name__
            if isinstance(tensor, Tensor):
                shape = tuple(tensor.shape)
                if tensor.ndim in (2, 3) or (is_logits and tensor.ndim == 4):
                    continue
            raise DataError(f"{what} gives {shape}, but expected {expected}", field=tap.parameter)
        if self._matching.call is not None:
            try:
                tensors = [tensors[self._matching.call]]
            except IndexError:
                problem = f"{what} ran {len(tensors)} times for the image, but call {self._matching.call} is asked for"
                raise DataError(f"image {names[0]!r}: {problem}", field=tap.parameter) from None
        if len(tensors) > 1 and any(tensor.ndim != 4 for tensor in tensors):
            problem = (
                f"{what} ran {len(tensors)} times, and gave {_shapes(tensors)}: if the model sees several images "
                "before add, add them after each; if it runs several times per image, say which run counts with "
                "call=-1 (the last), or name another module"
            )
            raise DataError(f"image {names[0]!r}: {problem}", field=tap.parameter)
        if tensors[0].ndim == 4:
            tensors = [
                torch.cat(
                    [_cells(level, len(self._header.classes), what) for level in tensors], dim=1
                )
            ]
        rows = tensors[0]
        if rows.ndim == 2:
            # Of all images of the batch, one after the other: each detection is looked for among
            # all of them.
            return [rows] * len(names)
        if len(rows) != len(names):
            problem = f"{what} gives rows of {len(rows)} images, but {len(names)} are added"
            raise DataError(f"image {names[0]!r}: {problem}", field=tap.parameter)
        return list(rows)

    def _regions(self, name: str, detections: dict[str, Tensor], candidates: Candidates) -> Regions:
        """The detections of an image as regions."""
        count = len(detections["scores"])
        for field in detections:
            if len(detections[field]) != count:
                problem = f"image {name!r}: {count} scores, but {len(detections[field])} {field}"
                raise DataError(problem, field=field)
        device = candidates.logits.device
        labels = detections["labels"].long().to(device)
        columns = candidates.logits.shape[1]
        wrong = labels[(labels < 0) | (labels >= columns)]
        if len(wrong):
            problem = f"image {name!r}: {int(wrong[0])} is not a column of the {columns} logits"
            raise DataError(problem, field="labels")
        if "rows" in detections:
            rows = detections["rows"].long().to(device)
            outside = rows[(rows < 0) | (rows >= len(candidates.logits))]
            if len(outside):
                problem = f"image {name!r}: row {int(outside[0])}, but there are {len(candidates.logits)} candidates"
                raise DataError(problem, field="rows")
        else:
            rows = self._matched(name, detections["scores"].to(device), labels, candidates)
        vectors = {}
        if candidates.features is not None:
            vectors["features"] = candidates.features[rows].float().cpu().numpy()
        return Regions(
            header=self._header,
            image_id=np.full(count, name, dtype=object),
            region_id=np.arange(count),
            box=detections["boxes"].float().cpu().numpy().reshape(-1, 4),
            score=detections["scores"].float().cpu().numpy(),
            label=labels.cpu().numpy().astype(np.int16),
            logits=candidates.logits[rows].float().cpu().numpy(),
            **vectors,
        )

    def _matched(self, name: str, scores: Tensor, labels: Tensor, candidates: Candidates) -> Tensor:
        """The row of the candidate that each detection came from: the only one whose logits give its score.

        Args:
            name: The image, for messages.
            scores, labels: Shape (N,).
            candidates: R of them.

        Returns:
            Shape (N,), indices into the candidates.

        Raises:
            DataError: a detection has no such candidate, or several with different logits.
        """
        if len(scores) == 0:
            return labels
        if len(candidates.logits) == 0:
            raise DataError(
                f"image {name!r}: {len(scores)} detections, but no candidates", field="rows"
            )
        of_candidates = _class_scores(candidates.logits.float(), self._header)
        parts, distances = [], []
        for few in torch.arange(len(scores), device=labels.device).split(AT_ONCE):
            apart = (of_candidates[:, labels[few]] - scores[few].float()).abs()
            nearest = apart.topk(min(2, len(apart)), dim=0, largest=False)
            parts.append(nearest.indices)
            distances.append(nearest.values)
        found, distance = torch.cat(parts, dim=1), torch.cat(distances, dim=1)
        rows = found[0]
        absent = distance[0] > self._matching.tolerance
        doubtful = torch.zeros_like(absent)
        if len(found) > 1:
            doubtful = ~absent & (distance[1] <= self._matching.tolerance)
            if bool((distance[0] == 0).all()):
                # The scores were computed as they are here, to the last bit: then only equal bits
                # are in doubt.
                doubtful &= distance[1] == 0
            same_logits = (candidates.logits[rows] == candidates.logits[found[1]]).all(dim=1)
            doubtful &= ~same_logits
        if bool(absent.any() | doubtful.any()):
            raise DataError(
                self._uncertain(name, scores, labels, distance[0], absent, doubtful), field="rows"
            )
        return rows

    def _uncertain(
        self,
        name: str,
        scores: Tensor,
        labels: Tensor,
        nearest: Tensor,
        absent: Tensor,
        doubtful: Tensor,
    ) -> str:
        """A message about detections whose candidate is not certain; arguments as in `_matched`, shape (N,)."""
        parts = []
        for problem, which in (("fit no candidate", absent), ("fit several candidates", doubtful)):
            numbers = torch.where(which)[0].tolist()
            if not numbers:
                continue
            examples = []
            for number in numbers[:NAMED]:
                label = self._header.classes[int(labels[number])]
                example = f"{label} {float(scores[number]):.6g}"
                if problem == "fit no candidate":
                    example += f", the nearest is {float(nearest[number]):.2g} away"
                examples.append(example)
            parts.append(
                f"{len(numbers)} of {len(scores)} detections {problem} ({'; '.join(examples)})"
            )
        advice = (
            f"a score must be the {self._header.activation} of the logits of module {self._logits.name!r} in the "
            "label's column; where it is not, or where two candidates score alike, give `rows`"
        )
        return f"image {name!r}: {' and '.join(parts)}: {advice}"


def record(
    model: nn.Module,
    *,
    logits: str | nn.Module,
    classes: Sequence[str],
    background_index: int | None = None,
    activation: Activation = "softmax",
    features: str | nn.Module | None = None,
    folder: str | Path | None = None,
    score_threshold: float = 0.0,
    call: int | None = None,
    tolerance: float = 1e-6,
    read: Callable[[Any], Tensor] | None = None,
) -> Recorder:
    """Records the detections of any PyTorch model, with the logits and features that gave them.

    The model runs in your own loop, in a `with` block; hooks keep what its modules give, and
    `Recorder.add` takes the final detections of each image. With a `folder`, the adapter `parquet`
    reads what is written there; else `Recorder.regions` has it.

    The candidate (proposal, anchor, query) that a detection came from is the only one whose logits
    give its score in its label's column, to `tolerance`. Where that is not certain, the image is
    refused; `add` then takes the `rows` that your post-processing kept.

    Args:
        model: The network, in evaluation mode.
        logits: The module that gives the logits, before softmax or sigmoid; or its name in
            `model.named_modules()`. Its output has shape (R, K), or (B, R, K) for B images; or it
            is a convolution that gives maps (B, A · K, h, w), once per level, with the K logits of
            an anchor next to each other.
        classes: Name of each of the K columns, the background's included.
        background_index: The background's column; None where there is none.
        activation: What turns logits into scores: "softmax", "sigmoid", or "exp".
        features: The module whose output is the input of the last layer, (R, D) or (B, R, D). Left
            out, it is the input of `logits` where that is an `nn.Linear`, whose weight and bias are
            then recorded as the last layer.
        folder: A folder to be written, in files of 512 images; memory does not grow. One that is
            there is replaced.
        score_threshold: The lowest score that the loop lets through; no operating threshold below
            it is tried later.
        call: Which call counts where a module runs several times per image, as an index: -1 is the
            last.
        tolerance: Largest difference between a detection's score and its candidate's. Half
            precision needs 1e-3.
        read: Makes the tensor of logits from the output of `logits`, where that is not a tensor or
            a tuple whose first part is one.

    Returns:
        A context manager.

    Raises:
        ParameterError: the model has no such module.
        DataError: classes are named twice, or there is no column of the background.

    Example:
        A detector of two linear layers, whose post-processing keeps the better of three candidates:

        >>> import torch, farther
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Sequential(
        ...     torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
        ... )
        >>> names = ["background", "cat", "dog"]
        >>> with farther.record(model, logits="2", classes=names, background_index=0) as recorder:
        ...     with torch.no_grad():
        ...         probabilities = model(torch.randn(3, 4)).softmax(dim=1)
        ...     score, row = probabilities[:, 2].max(dim=0)
        ...     recorder.add("a.jpg", boxes=[[10, 10, 60, 80]], scores=score[None], labels=[2])
        >>> regions = recorder.regions
        >>> (
        ...     regions.image_id.tolist(),
        ...     regions.logits.shape,
        ...     regions.features.shape,
        ...     regions.weight.shape,
        ... )
        (['a.jpg'], (1, 3), (1, 8), (3, 8))
        >>> bool(
        ...     abs(regions.features @ regions.weight.T + regions.bias - regions.logits).max()
        ...     < 1e-6
        ... )
        True
    """
    tap = Tap(model, logits, "logits")
    last_layer: dict[str, Any] = {}
    if isinstance(tap.module, nn.Linear):
        tap.keeps_input = features is None
        bias = tap.module.bias
        last_layer["weight"] = tap.module.weight.detach().float().cpu().numpy()
        last_layer["bias"] = np.zeros(len(last_layer["weight"]), np.float32)
        if bias is not None:
            last_layer["bias"] = bias.detach().float().cpu().numpy()
        if len(classes) != len(last_layer["weight"]):
            problem = f"{len(classes)} names, but module {tap.name!r} gives {len(last_layer['weight'])} logits"
            raise DataError(f"{problem}; the background's column has a name, too", field="classes")
    header = Header(
        classes=tuple(classes),
        background_index=background_index,
        activation=activation,
        score_threshold=score_threshold,
        detector={"name": "record", "model": type(model).__name__, "logits": tap.name},
        **last_layer,
    )
    vectors = None if features is None else Tap(model, features, "features")
    return Recorder(
        header,
        tap,
        vectors,
        None if folder is None else Path(folder),
        Matching(call, tolerance, read),
    )


def _module_of(model: nn.Module, name: str, parameter: str) -> nn.Module:
    """A module by its name."""
    try:
        return model.get_submodule(name)
    except AttributeError:
        ending = name.rpartition(".")[2]
        known = [other for other, _ in model.named_modules() if other]
        alike = [other for other in known if ending in other] or known
        problem = f"the model has no module {shorten(name)}. Some are {', '.join(alike[:8])}"
        raise ParameterError(f"record: parameter {parameter!r}: {problem}") from None


def _copied(output: Any) -> Any:
    """A copy of an output, which later layers may overwrite; of a tuple, list or dict the copies of its parts."""
    if isinstance(output, Tensor):
        return output.detach().clone()
    if isinstance(output, tuple | list):
        return [_copied(part) for part in output]
    if isinstance(output, dict):
        return {name: _copied(part) for name, part in output.items()}
    return output


def _first_tensor(output: Any) -> Any:
    """An output that is a tensor, or the first part of a tuple."""
    while isinstance(output, list) and output:
        output = output[0]
    return output


def _cells(level: Tensor, columns: int, what: str) -> Tensor:
    """Maps of shape (B, A · K, h, w) as (B, h · w · A, K)."""
    if level.shape[1] % columns:
        problem = f"{what} gives maps of {level.shape[1]} channels, which is not a multiple of the {columns} classes"
        raise DataError(f"{problem}, with the background if it has a column", field="classes")
    cells = level.permute(0, 2, 3, 1)
    return cells.reshape(len(level), -1, columns)


def _class_scores(logits: Tensor, header: Header) -> Tensor:
    """Scores of all columns, shape (R, K)."""
    if header.activation == "softmax":
        return logits.softmax(dim=-1)
    if header.activation == "sigmoid":
        return logits.sigmoid()
    return logits.exp()


def _tensor(values: Any) -> Tensor:
    """Numbers as a tensor on the device that they are on."""
    if isinstance(values, Tensor):
        return values.detach()
    return torch.as_tensor(np.asarray(values))


def _shapes(tensors: Sequence[Tensor]) -> str:
    shapes = [str(tuple(tensor.shape)) for tensor in tensors[:NAMED]]
    return ", ".join(shapes) + (", …" if len(tensors) > NAMED else "")
