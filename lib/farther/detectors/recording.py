"""Records detections of a PyTorch model with their logits and features, in the user's own loop.

Hooks record the outputs of modules. Post-processing (thresholds, NMS, top k) hides which of a
network's candidates (proposals, anchors, queries) a final detection came from: the user gives it,
or it is found by the score, which must result from the candidate's logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from farther.tables.arguments import (
    class_names,
    floats,
    instance,
    integers,
    number,
    texts,
    whole_number,
)
from farther.tables.header import Activation

#: Images in one file of the folder.
SHARD_IMAGES = 512

#: Number of detections in a batch that is compared with all candidates.
BATCH = 32

#: Number of examples in a message.
EXAMPLES = 3


@dataclass(frozen=True)
class Matching:
    """Settings of matching detections with candidates; see `record` for the fields."""

    call: int | None = None
    tolerance: float = 1e-6
    read: Callable[[Any], Tensor] | None = None


@dataclass(frozen=True)
class Candidates:
    """R candidates of an image, from which the detections were selected.

    Args:
        logits: Shape (R, K).
        features: Shape (R, D), or None.
    """

    logits: Tensor
    features: Tensor | None


@dataclass(frozen=True)
class Matches:
    """The candidates whose logits fit the scores of N detections best.

    Args:
        rows: Nearest candidate of each detection, shape (N,).
        distance: Difference between its score and the detection's, shape (N,).
        is_absent: Whether the distance is above the tolerance, shape (N,), bool.
        is_ambiguous: Whether another candidate with other logits fits too, shape (N,), bool.
    """

    rows: Tensor
    distance: Tensor
    is_absent: Tensor
    is_ambiguous: Tensor


class Tap:
    """Outputs of a module in each call since the last `clear`.

    Args:
        model: The user's network.
        module: One of its modules, or a name of `named_modules`.
        parameter: The parameter of `record`, for messages.

    Attributes:
        keeps_input: Whether the module's inputs are recorded, too.

    Raises:
        ParameterError: the model has no such module.
    """

    def __init__(self, model: nn.Module, module: str | nn.Module, parameter: str):
        self.parameter = parameter
        names = {submodule: name for name, submodule in model.named_modules()}
        if isinstance(module, str):
            self.module = _module_of(model, module, parameter)
            self.name = module
        elif module in names:
            self.module = module
            self.name = names[module]
        else:
            raise ParameterError(
                f"record: parameter {parameter!r}: this {type(module).__name__} is not a module of "
                "the model; name one of model.named_modules()"
            )
        self.outputs: list[Any] = []
        self.inputs: list[Any] = []
        self.keeps_input = False
        self._hook: Any = None

    def start(self) -> None:
        """Starts recording."""
        self._hook = self.module.register_forward_hook(self._record)

    def stop(self) -> None:
        """Stops recording."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def clear(self) -> None:
        """Deletes the recorded outputs."""
        self.outputs.clear()
        self.inputs.clear()

    def _record(self, _module: nn.Module, args: tuple, output: Any) -> None:
        self.outputs.append(_copied(output))
        if self.keeps_input:
            first_input = args[0] if args else None
            self.inputs.append(_copied(first_input))


class Recorder:
    """Collects the detections of one image after the other; see `record`, which creates it.

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
        #: Regions of the images that are not written yet.
        self._unwritten: list[Regions] = []
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
        """Adds the final detections of the image, or of the batch, that the model has just seen.

        Args:
            image: The image's name, as in the images table, or the end of its path; for a batch, a
                list of names.
            boxes: Shape (N, 4): xmin, ymin, xmax, ymax in pixels of the original image. Arrays or
                tensors on any device; for a batch, here and in what follows, a list with one for
                each image.
            scores: Shape (N,), from 0 to 1.
            labels: Columns of the logits, shape (N,); the background's column counts.
            rows: The candidate that each detection came from, shape (N,): an index into the image's
                rows of the logits, or into all rows if logits of shape (R, K) are of a batch; of
                maps in the order of levels, rows, columns and anchors. By default, it is found by
                the score.

        Raises:
            DataError: a module did not run since the last call, or ran several times; numbers of
                rows do not fit; or it is not certain which candidates the detections came from.
                Nothing of the image is then recorded.
        """
        is_batch = not isinstance(image, str)
        names = texts(image, "image").tolist() if is_batch else [str(image)]
        columns = {"boxes": boxes, "scores": scores, "labels": labels, "rows": rows}
        detections_by_image: list[dict[str, np.ndarray]] = [{} for _ in names]
        for field, values in columns.items():
            if values is None:
                continue
            values_by_image = _list_of_images(values, field) if is_batch else [values]
            if len(values_by_image) != len(names):
                raise DataError(
                    f"{len(names)} images, but {field} of {len(values_by_image)}", field=field
                )
            for detections, image_values in zip(detections_by_image, values_by_image, strict=True):
                detections[field] = _array(image_values, field)

        try:
            candidates = self._candidates(names)
        finally:
            for tap in self._taps():
                tap.clear()

        regions = []
        for place, name in enumerate(names):
            if name in self._names or name in names[:place]:
                raise DataError(f"image {name!r} was added before", field="image")
            regions.append(self._regions(name, detections_by_image[place], candidates[place]))
        self._unwritten += regions
        self._names.update(names)
        self.images += len(names)
        if self._folder is not None:
            self._write(is_last=False)

    @property
    def regions(self) -> Regions:
        """All detections as a table; with a folder, after the `with` block only.

        Raises:
            DataError: the folder is not written yet.
        """
        if self._folder is not None:
            return Regions.read(self._folder)
        return self._unwritten_table()

    def _taps(self) -> list[Tap]:
        """The taps of logits and features."""
        if self._features is None:
            return [self._logits]
        return [self._logits, self._features]

    def _unwritten_table(self) -> Regions:
        """The regions that are not written yet, as one table."""
        with_rows = [regions for regions in self._unwritten if len(regions)]
        if not with_rows:
            return Regions.empty(self._header)
        table = Regions.concatenate(with_rows)
        return table.with_columns(region_id=np.arange(len(table)))

    def _write(self, *, is_last: bool) -> None:
        """Writes a file if there are enough images for one, and the folder after the last image."""
        assert self._folder is not None
        count = self.images - self._written_images
        if self._writer is None:
            # A random key: unfinished work of an earlier recording is not resumed.
            self._writer = RegionsWriter(self._folder, self._header, key=uuid4().hex)
        is_due = count >= SHARD_IMAGES
        if is_last and (count > 0 or self._shards == 0):
            is_due = True
        if is_due:
            self._writer.write_shard(self._shards, self._unwritten_table(), count)
            self._shards += 1
            self._written_images = self.images
            self._unwritten = []
        if is_last:
            self._writer.close(self._shards)

    def _candidates(self, names: Sequence[str]) -> list[Candidates]:
        """The candidates of each image that the model has just seen."""
        logits = self._rows_by_image(self._logits, self._logits.outputs, names)
        columns = len(self._header.classes)
        for image_logits in logits:
            if image_logits.shape[1] != columns:
                problem = (
                    f"module {self._logits.name!r} gives {image_logits.shape[1]} logits per row, "
                    f"but {columns} classes are named, with the background if it has a column"
                )
                raise DataError(problem, field="classes")

        features: Sequence[Tensor | None] = [None] * len(names)
        if self._features is not None:
            features = self._rows_by_image(self._features, self._features.outputs, names)
        elif self._logits.inputs:
            features = self._rows_by_image(self._logits, self._logits.inputs, names)

        candidates = []
        for image_logits, image_features in zip(logits, features, strict=True):
            if image_features is not None and len(image_features) != len(image_logits):
                assert self._features is not None
                problem = (
                    f"{len(image_features)} rows of module {self._features.name!r}, but "
                    f"{len(image_logits)} of {self._logits.name!r}: both must give one row per "
                    "candidate"
                )
                raise DataError(f"image {names[0]!r}: {problem}", field="features")
            candidates.append(Candidates(image_logits, image_features))
        return candidates

    def _rows_by_image(self, tap: Tap, calls: Sequence[Any], names: Sequence[str]) -> list[Tensor]:
        """Outputs of a module, one row per candidate of each image.

        Args:
            tap: The module.
            calls: Its recorded outputs or inputs.
            names: The images.

        Raises:
            DataError: the module did not run, ran several times, or the shapes do not fit.
        """
        module = f"module {tap.name!r}"
        if not calls:
            problem = (
                f"{module} did not run since the image before: call add after the model has seen "
                "the image, and name a module that it uses"
            )
            raise DataError(f"image {names[0]!r}: {problem}", field=tap.parameter)

        tensors = self._tensors_of(tap, calls)
        if self._matching.call is not None:
            try:
                tensors = [tensors[self._matching.call]]
            except IndexError:
                problem = (
                    f"{module} ran {len(tensors)} times for the image, but call "
                    f"{self._matching.call} is asked for"
                )
                raise DataError(f"image {names[0]!r}: {problem}", field=tap.parameter) from None
        if len(tensors) > 1 and any(tensor.ndim != 4 for tensor in tensors):
            problem = (
                f"{module} ran {len(tensors)} times, and gave {_shapes(tensors)}: if the model "
                "sees several images before add, add them after each; if it runs several times per "
                "image, say which run counts with call=-1 (the last), or name another module"
            )
            raise DataError(f"image {names[0]!r}: {problem}", field=tap.parameter)

        rows = tensors[0]
        if rows.ndim == 4:
            columns = len(self._header.classes)
            rows = torch.cat([_cells(level, columns, module) for level in tensors], dim=1)
        if rows.ndim == 2:
            # The rows of all images of the batch: each detection is compared with all of them.
            return [rows] * len(names)
        if len(rows) != len(names):
            problem = f"{module} gives rows of {len(rows)} images, but {len(names)} are added"
            raise DataError(f"image {names[0]!r}: {problem}", field=tap.parameter)
        return list(rows)

    def _tensors_of(self, tap: Tap, calls: Sequence[Any]) -> list[Tensor]:
        """The tensor of each recorded output.

        Raises:
            DataError: an output is not a tensor of a supported shape.
        """
        is_logits = calls is self._logits.outputs
        read: Callable[[Any], Any] = _first_tensor
        expected = "(rows, values) or (images, rows, values)"
        supported_dimensions = [2, 3]
        if is_logits:
            expected += ", or maps (images, anchors × classes, height, width)"
            supported_dimensions.append(4)
            if self._matching.read is not None:
                read = self._matching.read

        tensors = [read(output) for output in calls]
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                shape: Any = type(tensor).__name__
            elif tensor.ndim in supported_dimensions:
                continue
            else:
                shape = tuple(tensor.shape)
            raise DataError(
                f"module {tap.name!r} gives {shape}, but expected {expected}", field=tap.parameter
            )
        return tensors

    def _regions(
        self, name: str, detections: dict[str, np.ndarray], candidates: Candidates
    ) -> Regions:
        """The detections of an image as regions."""
        count = len(detections["scores"])
        for field in detections:
            if len(detections[field]) != count:
                problem = f"image {name!r}: {count} scores, but {len(detections[field])} {field}"
                raise DataError(problem, field=field)
        device = candidates.logits.device
        labels = torch.from_numpy(detections["labels"]).to(device)
        columns = candidates.logits.shape[1]
        wrong_labels = labels[(labels < 0) | (labels >= columns)]
        if len(wrong_labels):
            problem = f"{int(wrong_labels[0])} is not a column of the {columns} logits"
            raise DataError(f"image {name!r}: {problem}", field="labels")

        if "rows" in detections:
            rows = torch.from_numpy(detections["rows"]).to(device)
            wrong_rows = rows[(rows < 0) | (rows >= len(candidates.logits))]
            if len(wrong_rows):
                problem = (
                    f"row {int(wrong_rows[0])}, but there are {len(candidates.logits)} candidates"
                )
                raise DataError(f"image {name!r}: {problem}", field="rows")
        else:
            scores = torch.from_numpy(detections["scores"]).to(device)
            rows = self._matched_rows(name, scores, labels, candidates)

        optional_columns = {}
        if candidates.features is not None:
            optional_columns["features"] = candidates.features[rows].float().cpu().numpy()
        return Regions(
            header=self._header,
            image_id=np.full(count, name, dtype=object),
            region_id=np.arange(count),
            box=detections["boxes"],
            score=detections["scores"],
            label=detections["labels"],
            logits=candidates.logits[rows].float().cpu().numpy(),
            **optional_columns,
        )

    def _matched_rows(
        self, name: str, scores: Tensor, labels: Tensor, candidates: Candidates
    ) -> Tensor:
        """The candidate of each detection: the only one whose logits result in its score.

        Args:
            name: The image, for messages.
            scores, labels: Shape (N,).
            candidates: R candidates.

        Returns:
            Indices into the candidates, shape (N,).

        Raises:
            DataError: a detection has no such candidate, or several with different logits.
        """
        if len(scores) == 0:
            return labels
        if len(candidates.logits) == 0:
            raise DataError(
                f"image {name!r}: {len(scores)} detections, but no candidates", field="rows"
            )
        matches = self._match(scores, labels, candidates)
        if bool(matches.is_absent.any() | matches.is_ambiguous.any()):
            raise DataError(self._mismatch(name, scores, labels, matches), field="rows")
        return matches.rows

    def _match(self, scores: Tensor, labels: Tensor, candidates: Candidates) -> Matches:
        """The nearest candidates of detections; arguments as in `_matched_rows`."""
        candidate_scores = _class_scores(candidates.logits.float(), self._header)
        nearest_rows = []
        nearest_distances = []
        for batch in torch.arange(len(scores), device=labels.device).split(BATCH):
            distances = (candidate_scores[:, labels[batch]] - scores[batch].float()).abs()
            nearest = distances.topk(min(2, len(distances)), dim=0, largest=False)
            nearest_rows.append(nearest.indices)
            nearest_distances.append(nearest.values)
        rows = torch.cat(nearest_rows, dim=1)
        distance = torch.cat(nearest_distances, dim=1)

        is_absent = distance[0] > self._matching.tolerance
        is_ambiguous = torch.zeros_like(is_absent)
        if len(rows) > 1:
            is_ambiguous = ~is_absent & (distance[1] <= self._matching.tolerance)
            if bool((distance[0] == 0).all()):
                # The scores are reproduced to the last bit: then only equal scores are ambiguous.
                is_ambiguous &= distance[1] == 0
            has_same_logits = candidates.logits[rows[0]] == candidates.logits[rows[1]]
            is_ambiguous &= ~has_same_logits.all(dim=1)
        return Matches(rows[0], distance[0], is_absent, is_ambiguous)

    def _mismatch(self, name: str, scores: Tensor, labels: Tensor, matches: Matches) -> str:
        """A message on detections whose candidate is not certain."""
        problems = []
        absent = torch.where(matches.is_absent)[0].tolist()
        if absent:
            examples = []
            for number in absent[:EXAMPLES]:
                example = self._example(scores, labels, number)
                distance = float(matches.distance[number])
                examples.append(f"{example}, the nearest is {distance:.2g} away")
            problems.append(
                f"{len(absent)} of {len(scores)} detections fit no candidate "
                f"({'; '.join(examples)})"
            )
        ambiguous = torch.where(matches.is_ambiguous)[0].tolist()
        if ambiguous:
            examples = [self._example(scores, labels, number) for number in ambiguous[:EXAMPLES]]
            problems.append(
                f"{len(ambiguous)} of {len(scores)} detections fit several candidates "
                f"({'; '.join(examples)})"
            )
        advice = (
            f"a score must be the {self._header.activation} of the logits of module "
            f"{self._logits.name!r} in the label's column; where it is not, or where two "
            "candidates score alike, give `rows`"
        )
        return f"image {name!r}: {' and '.join(problems)}: {advice}"

    def _example(self, scores: Tensor, labels: Tensor, number: int) -> str:
        """Class and score of a detection, for a message."""
        return f"{self._header.classes[int(labels[number])]} {float(scores[number]):.6g}"


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
    """Records the detections of any PyTorch model, with their logits and features.

    The model runs in your own loop, in a `with` block; hooks record the outputs of its modules, and
    the final detections of each image are passed to `Recorder.add`. With a `folder`, the adapter
    `parquet` reads the written files; without one, `Recorder.regions` has the detections.

    The candidate (proposal, anchor, query) of a detection is the only one whose logits result in
    the detection's score in its label's column, to `tolerance`. If that is not certain, the image
    is refused; give `add` the `rows` that your post-processing selected.

    Args:
        model: The network, in evaluation mode.
        logits: The module whose output is the logits, before softmax or sigmoid; or its name in
            `model.named_modules()`. Its output has shape (R, K), or (B, R, K) for B images; or it
            is a convolution with maps (B, A · K, h, w) as output, once per level, with the K logits
            of an anchor next to each other.
        classes: Name of each of the K columns, the background's included.
        background_index: The background's column; None if there is none.
        activation: Converts logits to scores: "softmax", "sigmoid", or "exp".
        features: The module whose output is the input of the last layer, (R, D) or (B, R, D). By
            default, it is the input of `logits` if that is an `nn.Linear`, whose weight and bias
            are then recorded as the last layer.
        folder: A folder to write, in files of 512 images; memory does not grow. An existing one is
            replaced.
        score_threshold: The score threshold of the loop; no operating threshold below it is tried
            later.
        call: Index of the call that counts if a module runs several times per image: -1 is the
            last.
        tolerance: Largest difference between a detection's score and its candidate's. Half
            precision needs 1e-3.
        read: Converts the output of `logits` to the tensor of logits, if it is not a tensor or a
            list whose first item is one.

    Returns:
        A context manager.

    Raises:
        ParameterError: the model has no such module.
        DataError: classes are named twice, or there is no column of the background.

    Example:
        A detector of two linear layers, whose post-processing keeps the better of three candidates:

        >>> import torch, farther
        >>> _ = torch.manual_seed(0)
        >>> layers = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)]
        >>> model = torch.nn.Sequential(*layers)
        >>> names = ["background", "cat", "dog"]
        >>> with farther.record(model, logits="2", classes=names, background_index=0) as recorder:
        ...     with torch.no_grad():
        ...         probabilities = model(torch.randn(3, 4)).softmax(dim=1)
        ...     score, row = probabilities[:, 2].max(dim=0)
        ...     recorder.add("a.jpg", boxes=[[10, 10, 60, 80]], scores=score[None], labels=[2])
        >>> regions = recorder.regions
        >>> regions.image_id.tolist(), regions.logits.shape, regions.features.shape
        (['a.jpg'], (1, 3), (1, 8))
        >>> logits = regions.features @ regions.weight.T + regions.bias
        >>> bool(abs(logits - regions.logits).max() < 1e-6)
        True
    """
    instance(model, nn.Module, "model")
    classes = class_names(classes)
    tolerance = number(tolerance, "tolerance", at_least=0)
    if call is not None:
        call = whole_number(call, "call")
    logits_tap = Tap(model, logits, "logits")
    last_layer = {}
    if isinstance(logits_tap.module, nn.Linear):
        logits_tap.keeps_input = features is None
        last_layer = _last_layer(logits_tap.module)
        logit_count = len(last_layer["weight"])
        if len(classes) != logit_count:
            raise DataError(
                f"{len(classes)} names, but module {logits_tap.name!r} gives {logit_count} logits; "
                "the background's column has a name, too",
                field="classes",
            )
    header = Header(
        classes=tuple(classes),
        background_index=background_index,
        activation=activation,
        score_threshold=score_threshold,
        detector={"name": "record", "model": type(model).__name__, "logits": logits_tap.name},
        **last_layer,
    )
    features_tap = None
    if features is not None:
        features_tap = Tap(model, features, "features")
    path = None if folder is None else Path(folder)
    return Recorder(header, logits_tap, features_tap, path, Matching(call, tolerance, read))


def _last_layer(layer: nn.Linear) -> dict[str, Any]:
    """Weight (K, D) and bias (K,) of a linear layer; a missing bias is 0."""
    weight = layer.weight.detach().float().cpu().numpy()
    if layer.bias is None:
        return {"weight": weight, "bias": np.zeros(len(weight), np.float32)}
    return {"weight": weight, "bias": layer.bias.detach().float().cpu().numpy()}


def _module_of(model: nn.Module, name: str, parameter: str) -> nn.Module:
    """The module of a name.

    Raises:
        ParameterError: there is none; names some modules with the same last part.
    """
    try:
        return model.get_submodule(name)
    except AttributeError:
        last_part = name.rpartition(".")[2]
        known = [known_name for known_name, _ in model.named_modules() if known_name]
        similar = [known_name for known_name in known if last_part in known_name] or known
        raise ParameterError(
            f"record: parameter {parameter!r}: the model has no module {shorten(name)}. Some are "
            f"{', '.join(similar[:8])}"
        ) from None


def _copied(output: Any) -> Any:
    """A deep copy of an output, which later layers may overwrite."""
    if isinstance(output, Tensor):
        return output.detach().clone()
    if isinstance(output, tuple | list):
        return [_copied(item) for item in output]
    if isinstance(output, dict):
        return {name: _copied(item) for name, item in output.items()}
    return output


def _first_tensor(output: Any) -> Any:
    """An output, or its first item while it is a list."""
    while isinstance(output, list) and output:
        output = output[0]
    return output


def _cells(level: Tensor, columns: int, module: str) -> Tensor:
    """Maps of shape (B, A · K, h, w) as rows of shape (B, h · w · A, K).

    Args:
        level: The maps of a pyramid level.
        columns: K.
        module: The module, for messages.
    """
    channels = level.shape[1]
    if channels % columns:
        raise DataError(
            f"{module} gives maps of {channels} channels, which is not a multiple of the {columns} "
            "classes, with the background if it has a column",
            field="classes",
        )
    return level.permute(0, 2, 3, 1).reshape(len(level), -1, columns)


def _class_scores(logits: Tensor, header: Header) -> Tensor:
    """Scores of logits, shape (R, K)."""
    if header.activation == "softmax":
        return logits.softmax(dim=-1)
    if header.activation == "sigmoid":
        return logits.sigmoid()
    return logits.exp()


def _list_of_images(values: Any, name: str) -> list:
    """The values of each image of a batch.

    Args:
        values: A list.
        name: Of the argument, in messages.
    """
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        found = type(values).__name__
        raise DataError(f"expected a list with one array per image, found {found}", field=name)
    return list(values)


def _array(values: Any, name: str) -> np.ndarray:
    """Detections of an image as an array.

    Args:
        values: See `farther.tables.arguments`.
        name: Of the argument of `Recorder.add`.

    Raises:
        DataError: they are no such numbers.
    """
    if name in ("labels", "rows"):
        return np.array(integers(values, name))
    shape = (None, 4) if name == "boxes" else (None,)
    return np.array(floats(values, name, shape=shape, dtype=np.float32))


def _shapes(tensors: Sequence[Tensor]) -> str:
    """The shapes of the first tensors, for a message."""
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors[:EXAMPLES])
    if len(tensors) > EXAMPLES:
        return f"{shapes}, …"
    return shapes
