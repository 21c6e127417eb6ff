"""Files of scores that other programs computed.

Each row has its image and, for detections, its box.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from farther.detectors.imported.base import DetectionsSource
from farther.detectors.imported.images import BenchmarkImages, Scopes
from farther.errors import DataError, ParameterError, choose, known_names, shorten
from farther.methods.imported import ImportedScores, SplitScores
from farther.metrics.ood import auroc
from farther.tables import Images
from farther.tables.files import open_binary, regular_file, separator_of
from farther.tables.parquet import read_parquet

#: Names of the columns, the first one that a file has.
IMAGE = ("image", "image_id", "file_name", "image_path", "filename", "file", "path")
SCORE = ("score", "pred_score", "conf", "anomaly_score")
BOX = ("xmin", "ymin", "xmax", "ymax")
SPLIT = "split"

#: Arrays of a file that OpenOOD saves, and the label of an image that is out of distribution.
CONFIDENCE = "conf"
LABEL = "label"
OOD_LABEL = -1

#: AUROC below which the scores may have the other sign.
WRONG_SIGN = 0.5


@dataclass(frozen=True)
class ScoreRows:
    """The rows of a file.

    Args:
        path: The file.
        split: The split that each row is for, "" for any, object array of shape (N,).
        image: What the file calls the image of each row, object array of shape (N,).
        score: ndarray of shape (N,), float64.
        box: ndarray of shape (N, 4), float32; None where the file has none.
    """

    path: Path
    split: np.ndarray
    image: np.ndarray
    score: np.ndarray
    box: np.ndarray | None


def learn_imported(
    method: ImportedScores,
    images_by_split: Mapping[str, Images],
    id_split: str,
    ood_splits: Sequence[str],
) -> None:
    """Gives a method the scores of its files, by split and image.

    Scores whose sign seems to be the wrong one are remarked on; nothing is turned round.

    Args:
        method: It names the files; it was fitted.
        images_by_split: The images of all splits of the benchmark.
        id_split: The ID validation split, and
        ood_splits: the OOD splits, by whose scores the sign is checked.

    Raises:
        ParameterError: a split is unknown, or an `.npz` file comes without its list.
        DataError: a file is absent or damaged; a score is not a finite number; an image occurs
            twice; a name means two images, or none of the rows is of an image of the benchmark.
    """
    datasets = frozenset(name for images in images_by_split.values() for name in images.dataset)
    benchmark = BenchmarkImages(images_by_split, Scopes(frozenset(images_by_split), datasets))
    parts: dict[str, list[SplitScores]] = {}
    remarks = []
    for rows in _read_files(method, list(images_by_split)):
        of_splits, unplaced = _place(rows, benchmark, images_by_split)
        for split, scores in of_splits.items():
            parts.setdefault(split, []).append(scores)
        if unplaced:
            example = shorten(unplaced[0])
            images = f"{len(unplaced):,} images of {rows.path.name}"
            remarks.append(f"{images} are in no split, such as {example}")
    scores_by_split = {split: _joined(scores) for split, scores in parts.items()}
    if method.whole_images_:
        for split, scores in scores_by_split.items():
            _refuse_repeated(method, split, scores)
    remarks.extend(_remarks_on_sign(method, scores_by_split, id_split, ood_splits))
    method.learn_scores(scores_by_split, tuple(remarks))


def _read_files(method: ImportedScores, splits: Sequence[str]) -> list[ScoreRows]:
    """All files of a method."""
    if isinstance(method.file, str):
        if Path(method.file).suffix.lower() == ".npz":
            problem = f"{method.file}: the file has no names of images"
            advice = "write `file: {SPLIT: FILE}` and `lists`"
            raise ParameterError(f"methods: imported: {problem}: {advice}")
        return [_read_table(Path(method.file), "")]
    every = []
    for split, file in method.file.items():
        choose("split in `file`", split, splits)
        path = Path(file)
        if path.suffix.lower() != ".npz":
            every.append(_read_table(path, split))
        elif method.lists is None or split not in method.lists:
            problem = (
                f"{file}: scores in the order of a list of images: write `lists: {{{split}: LIST}}`"
            )
            raise ParameterError(f"methods: imported: {problem}")
        else:
            every.append(_read_openood(path, Path(method.lists[split]), split))
    return every


def _read_table(path: Path, split: str) -> ScoreRows:
    """A CSV or Parquet file."""
    if path.suffix.lower() == ".parquet":
        frame = read_parquet(path)
    else:
        with open_binary(path) as file:
            content = file.read()
        first_line = content.partition(b"\n")[0].decode(errors="replace")
        separator = separator_of(first_line)
        try:
            frame = pl.read_csv(content, infer_schema=False, separator=separator)
        except pl.exceptions.PolarsError as error:
            raise DataError(f"not a CSV file: {str(error).splitlines()[0]}", file=path) from None
        if separator == ";":
            numbers = [name for name in (*SCORE, *BOX) if name in frame.columns]
            frame = frame.with_columns(pl.col(numbers).str.replace(",", ".", literal=True))
    image = _column(frame, IMAGE, path)
    score = _numbers(frame, _column(frame, SCORE, path), path)
    boxes = None
    if set(BOX) <= set(frame.columns):
        boxes = np.stack([_numbers(frame, name, path) for name in BOX], axis=1).astype(np.float32)
    splits = np.full(len(frame), split, dtype=object)
    if SPLIT in frame.columns and not split:
        splits = frame[SPLIT].cast(pl.String).fill_null("").to_numpy().astype(object)
    names = frame[image].cast(pl.String)
    if names.null_count():
        raise DataError("no image", file=path, row=int(names.is_null().arg_max() or 0), field=image)
    return ScoreRows(path, splits, names.to_numpy().astype(object), score, boxes)


def _column(frame: pl.DataFrame, names: Sequence[str], path: Path) -> str:
    """The first of some columns that a file has."""
    for name in names:
        if name in frame.columns:
            return name
    found = ", ".join(map(shorten, frame.columns[:8])) or "none"
    raise DataError(f"no column {names[0]!r}; its columns are {found}", file=path, field=names[0])


def _numbers(frame: pl.DataFrame, column: str, path: Path) -> np.ndarray:
    """A column of finite numbers, ndarray of shape (N,), float64."""
    values = frame[column].cast(pl.Float64, strict=False)
    wrong = (values.is_null() | ~values.is_finite().fill_null(value=False)).to_numpy()
    if wrong.any():
        row = int(wrong.argmax())
        problem = f"expected a finite number, found {shorten(frame[column][row])}"
        raise DataError(problem, file=path, row=row, field=column)
    return values.to_numpy().astype(np.float64)


def _read_openood(path: Path, list_file: Path, split: str) -> ScoreRows:
    """Scores that OpenOOD saved, in the order of one of its lists of images."""
    names, labels = _read_list(list_file)
    try:
        with np.load(io.BytesIO(regular_file(path).read_bytes()), allow_pickle=False) as arrays:
            score = np.asarray(arrays[CONFIDENCE], dtype=np.float64).reshape(-1)
            label = np.asarray(arrays[LABEL]).reshape(-1)
    except (KeyError, OSError, ValueError, EOFError) as error:
        problem = (
            f"expected arrays {CONFIDENCE!r} and {LABEL!r} of numbers: {str(error).splitlines()[0]}"
        )
        raise DataError(problem, file=path) from None
    if len(score) != len(names) or len(label) != len(names):
        problem = f"{len(score):,} scores, but {list_file} lists {len(names):,} images"
        raise DataError(problem, file=path, field=CONFIDENCE)
    if not np.isfinite(score).all():
        raise DataError(
            "not a finite number",
            file=path,
            row=int((~np.isfinite(score)).argmax()),
            field=CONFIDENCE,
        )
    differs = (label != labels) & (label != OOD_LABEL)
    if differs.any():
        row = int(differs.argmax())
        problem = f"label {label[row]}, but {list_file} has {labels[row]} there"
        raise DataError(
            f"{problem}: is it in the order of another list?", file=path, row=row, field=LABEL
        )
    splits = np.full(len(names), split, dtype=object)
    return ScoreRows(path, splits, np.array(names, dtype=object), score, None)


def _read_list(path: Path) -> tuple[list[str], np.ndarray]:
    """Images of a list of OpenOOD, "path label" per line, and their labels."""
    names = []
    labels = []
    text = regular_file(path).read_text(encoding="utf-8")
    for row, line in enumerate(text.splitlines()):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        try:
            labels.append(int(label))
        except ValueError:
            raise DataError(
                f"expected a path and a label, found {shorten(line)}", file=path, row=row
            ) from None
        names.append(name)
    return names, np.array(labels, dtype=np.int64)


def _place(
    rows: ScoreRows, benchmark: BenchmarkImages, images_by_split: Mapping[str, Images]
) -> tuple[dict[str, SplitScores], list[str]]:
    """The rows of each split, and the names that mean no image."""
    pairs = list(dict.fromkeys(zip(rows.split.tolist(), rows.image.tolist(), strict=True)))
    for split, _ in pairs:
        if split and split not in images_by_split:
            problem = f"no split is called {split!r}. {known_names(images_by_split)}"
            raise DataError(problem, file=rows.path, field=SPLIT)
    number_by_pair = {pair: number for number, pair in enumerate(pairs)}
    numbers = np.array(
        [number_by_pair[pair] for pair in zip(rows.split, rows.image, strict=True)], dtype=np.int64
    )
    try:
        places = benchmark.place(
            [(DetectionsSource(split, rows.path), name) for split, name in pairs]
        )
    except DataError as error:
        problem = (
            f"{error.problem.rpartition(': ')[0]}: name the split of each row in a column `split`"
        )
        raise DataError(problem, file=rows.path, field=SPLIT) from None
    if len(pairs) and not places.is_matched.any():
        example = "none"
        for images in images_by_split.values():
            if len(images):
                example = str(images.file[0])
                break
        names = f"it names {shorten(pairs[0][1])}, a split has {shorten(example)}"
        problem = f"none of its images is in a split: {names}"
        raise DataError(problem, file=rows.path, field=IMAGE[0])

    scores_by_split = {}
    for split, images in images_by_split.items():
        is_for_split = np.array([name in ("", split) for name, _ in pairs], dtype=bool)
        place = np.where(is_for_split, places.in_split(split), -1)
        row = place[numbers]
        chosen = row >= 0
        if chosen.any():
            box = None if rows.box is None else rows.box[chosen]
            scores_by_split[split] = SplitScores(
                images.image_id[row[chosen]], rows.score[chosen], box
            )
    unplaced = [pairs[number][1] for number in np.flatnonzero(~places.is_matched)]
    return scores_by_split, unplaced


def _joined(parts: Sequence[SplitScores]) -> SplitScores:
    """The scores of a split from several files."""
    if len(parts) == 1:
        return parts[0]
    boxes = [part.box for part in parts if part.box is not None]
    return SplitScores(
        np.concatenate([part.image_id for part in parts]),
        np.concatenate([part.score for part in parts]),
        np.concatenate(boxes) if len(boxes) == len(parts) else None,
    )


def _remarks_on_sign(
    method: ImportedScores,
    scores_by_split: Mapping[str, SplitScores],
    id_split: str,
    ood_splits: Sequence[str],
) -> list[str]:
    """A remark where OOD scores are more like ID than those of ID validation: AUROC below 0.5."""
    unknown = [scores_by_split[split].score for split in ood_splits if split in scores_by_split]
    if id_split not in scores_by_split or not unknown:
        return []
    id_scores = scores_by_split[id_split].score
    ood_scores = np.concatenate(unknown)
    if method.higher == "ood":
        id_scores = -id_scores
        ood_scores = -ood_scores
    value = auroc(id_scores, ood_scores)
    if not value < WRONG_SIGN:
        return []
    opposite = "ood"
    if method.higher == "ood":
        opposite = "id"
    splits = f"split {id_split!r} against {', '.join(ood_splits)}"
    question = f"are its higher scores {opposite.upper()}? Then write `higher: {opposite}`"
    return [f"AUROC of {splits} is {value:.3f}, below {WRONG_SIGN}: {question}"]


def _refuse_repeated(method: ImportedScores, split: str, scores: SplitScores) -> None:
    """Refuses two scores of one image."""
    names, counts = np.unique(scores.image_id.astype(str), return_counts=True)
    if len(names) == len(scores.image_id):
        return
    repeated = names[counts > 1]
    file = method.file
    if not isinstance(file, str):
        file = file.get(split, split)
    images = f"{len(repeated):,} images of split {split!r}"
    problem = f"{images} have several scores, such as {str(repeated[0])!r}"
    raise DataError(problem, file=file, field=IMAGE[0])
