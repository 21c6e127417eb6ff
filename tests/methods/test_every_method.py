"""What must hold of every method, whatever its formula."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.support.messages import NOT_FITTED

from farther import methods
from farther.errors import DataError, ParameterError
from farther.methods import FitError
from farther.tables import Regions, RegionsFolder

#: Parameters that suit the small tables of these tests.
PARAMS: dict[str, dict] = {
    "knn": {"k": 3},
    "temperature_scaling": {"temperature": 2.0},
    "gram": {"layer": ["shallow", "deep"]},
    "fused": {"of": ["energy", "mahalanobis"]},
    "cascade": {"first": "energy", "then": "mahalanobis"},
}
#: All but those that learn from a pass, read columns that mean unknown objects, or were computed
#: elsewhere, which have tests of their own.
NAMES = [
    name
    for name in methods.names()
    if name not in ("native", "neg_label", "imported")
    and methods.create(name, **PARAMS.get(name, {})).wants_pass is None
]
#: What docs/deploy.md promises, as a share of the scores' standard deviation: other rows in a
#: matrix product change the order in which it adds, which moves sums of float32 by some 10⁻⁷.
MOST_MOVED = 1e-6
#: What regions may lack.
OPTIONAL = {
    *(
        "features",
        "latent",
        "gram.shallow",
        "gram.deep",
        "last_layer",
        "uncertainty",
        "box_variance",
    ),
    *("predictive_entropy", "mutual_information", "latent.patch"),
    *("latent.numerator", "latent.denominator", "latent.confidence"),
    "latent.before",
}


def create(name: str) -> methods.Method:
    return methods.create(name, **PARAMS.get(name, {}))


def auroc(id_scores: np.ndarray, ood_scores: np.ndarray) -> float:
    greater = (id_scores[:, None] > ood_scores).mean()
    return float(greater + 0.5 * (id_scores[:, None] == ood_scores).mean())


def without(regions: Regions, *columns: str) -> Regions:
    header = regions.header
    if "last_layer" in columns:
        header = dataclasses.replace(header, weight=None, bias=None)
    kept = {n: v for n, v in regions.columns().items() if n not in columns}
    return Regions(header=header, **kept)


@pytest.mark.parametrize("name", NAMES)
def test_higher_scores_mean_more_in_distribution(name, make):
    fitted = create(name).fit(make(seed=1))
    assert auroc(fitted.score(make(seed=2)), fitted.score(make(seed=3, shift=8.0))) > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_method_scores_alike(name, make, tmp_path):
    fitted = create(name).fit(make(seed=1))
    fitted.save(tmp_path / "state")
    loaded = methods.load(tmp_path / "state")
    assert type(loaded) is type(fitted)
    assert dataclasses.asdict(loaded) == dataclasses.asdict(fitted)
    regions = make(seed=2, shift=1.0)
    expected = fitted.score(regions)
    np.testing.assert_allclose(
        loaded.score(regions), expected, rtol=0, atol=MOST_MOVED * expected.std()
    )


@pytest.mark.parametrize("name", NAMES)
def test_fitting_twice_gives_the_same_files(name, make, tmp_path):
    create(name).fit(make(seed=1)).save(tmp_path / "a")
    create(name).fit(make(seed=1)).save(tmp_path / "b")
    for file in ("method.json", "state.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_read_in_batches_gives_what_memory_gives(name, make, tmp_path, monkeypatch):
    regions = make(seed=1)
    monkeypatch.setattr("farther.tables.regions.ROW_GROUP", 64)
    regions.write(tmp_path / "regions")
    folder = RegionsFolder(tmp_path / "regions")
    assert len(list(folder.batches())) == 5
    streamed = create(name).fit(folder).score(folder)
    monkeypatch.setattr("farther.tables.regions.ROW_GROUP", 10_000)
    np.testing.assert_allclose(
        streamed, create(name).fit(regions).score(regions), rtol=1e-7, atol=1e-7
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_training_rows_does_not_matter(name, make):
    regions = make(seed=1)
    shuffled = regions[np.random.default_rng(0).permutation(len(regions))]
    test = make(seed=2)
    found, expected = create(name).fit(shuffled).score(test), create(name).fit(regions).score(test)
    tolerance = 1e-2 if name == "oodl" else 1e-5  # its solver stops early
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_scores_the_same_whatever_rows_are_beside_it(name, make):
    fitted = create(name).fit(make(seed=1))
    regions = make(seed=2)
    scores = fitted.score(regions)
    tolerance = MOST_MOVED * scores.std()
    np.testing.assert_allclose(fitted.score(regions[::-1])[::-1], scores, rtol=0, atol=tolerance)
    for size in (1, 3, 70):
        parts = [fitted.score(regions[first : first + size]) for first in range(0, 2 * size, size)]
        np.testing.assert_allclose(
            np.concatenate(parts), scores[: 2 * size], rtol=0, atol=tolerance
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_table_without_rows_gets_no_scores(name, make):
    scores = create(name).fit(make(seed=1)).score(make(0))
    assert scores.shape == (0,)
    assert scores.dtype == np.float64


@pytest.mark.parametrize("name", NAMES)
def test_fitting_on_no_rows_says_so(name, make):
    with pytest.raises(FitError, match="no regions to fit on"):
        create(name).fit(make(0))


DIFFICULT = {
    "a class without detections": lambda make: _relabelled(
        make(), lambda label: np.where(label == 2, 1, label)
    ),
    "a class with one detection": lambda make: _one_of_class(make(), 2),
    "one class only": lambda make: _relabelled(make(), lambda label: 0 * label),
    "fewer regions than dimensions": lambda make: make(12, dimensions=32),
    "a constant feature": lambda make: _with_features(
        make(), lambda f: np.where(np.arange(f.shape[1]) == 1, 3.0, f)
    ),
    "features that are all zero": lambda make: _with_features(make(), lambda f: 0 * f),
    "duplicated rows": lambda make: make()[np.repeat(np.arange(40), 5)],
    "float16": lambda make: make(dtype=np.float16),
    "a background column": lambda make: make(background=True),
    "a sigmoid head": lambda make: make(activation="sigmoid"),
    "one known class": lambda make: make(classes=1),
    "huge logits": lambda make: _with_logits(make(), lambda logits: logits * np.float32(1e4)),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", DIFFICULT)
def test_difficult_regions_get_finite_scores_or_a_reason(name, case, make):
    regions = DIFFICULT[case](make)
    try:
        scores = create(name).fit(regions).score(regions)
    except FitError as reason:
        assert name in str(reason)
    else:
        assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "name", [n for n in NAMES if methods.get(n).needs - {"logits", "labels", "score"}]
)
def test_a_method_says_what_it_misses(name, make):
    regions = without(make(), *OPTIONAL)
    method = create(name)
    assert set(method.missing(regions)) == set(method.inputs) - {"logits", "labels"}
    with pytest.raises(FitError, match=method.missing(regions)[0]):
        method.fit(regions)


@pytest.mark.parametrize("name", [n for n in NAMES if "logits" in methods.get(n).needs])
def test_without_logits_a_method_that_reads_them_cannot_be_applied(name, make):
    with pytest.raises(FitError, match=r"needs .*logits"):
        create(name).fit(without(make(), "logits"))


@pytest.mark.parametrize("name", NAMES)
def test_a_method_reads_nothing_that_it_does_not_say(name, make):
    method, train, test = create(name), make(seed=1), make(seed=2)
    assert method.inputs <= {"logits", "labels", "score"} | OPTIONAL
    expected = method.fit(train).score(test)
    spared = [_without(without(r, *OPTIONAL - method.inputs), method) for r in (train, test)]
    np.testing.assert_array_equal(create(name).fit(spared[0]).score(spared[1]), expected)


@pytest.mark.parametrize("name", [n for n in NAMES if create(n).learns])
def test_scoring_before_fitting_says_so(name, make):
    with pytest.raises(FitError, match=NOT_FITTED):
        create(name).score(make())
    with pytest.raises(FitError, match=NOT_FITTED):
        create(name).save("anywhere")


def test_a_method_whose_fit_failed_is_not_fitted(make):
    method = methods.create("ddu", jitter=0.0)
    with pytest.raises(FitError, match="does not factorise"):
        method.fit(make(60, dimensions=64))
    with pytest.raises(FitError, match=NOT_FITTED):
        method.score(make(5, dimensions=64))


@pytest.mark.parametrize("name", NAMES)
def test_regions_of_another_detector_are_refused(name, make):
    with pytest.raises(DataError, match="was fitted on"):
        create(name).fit(make(classes=5)).score(make(classes=4))


@pytest.mark.parametrize(
    "name", [n for n in NAMES if methods.get(n).needs & {"features", "latent", "gram"}]
)
def test_vectors_of_another_width_are_refused(name, make):
    narrow, wide = make(dimensions=12), make(dimensions=15)
    field, wider, fitted = r"(features|latent|gram\.\w+)", r"(7|1[59])", r"(6|1[26])"
    with pytest.raises(
        DataError, match=f"field '{field}': {wider} values per row, but .* was fitted on {fitted}"
    ):
        create(name).fit(narrow).score(wide)


def test_a_class_without_a_score_is_not_a_method():
    with pytest.raises(TypeError, match="_score"):
        methods.Method()


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ParameterError, match="mahalanobis"):
        methods.create("mahalanobi")


def test_an_unknown_parameter_lists_the_known_ones():
    with pytest.raises(ParameterError, match=r"Known: .*protocol"):
        methods.create("knn", neighbours=3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"format": "farther.regions"}, "format"),
        ({"version": 99}, "version"),
        ({"name": 3}, "name"),
        ({"params": {"k": 3}}, "digest"),
        ({"params": [1]}, "params"),
        ({"state": {"fitted_on_": 1}}, "digest"),
        ({"state": 1}, "state"),
        ({"digest": None}, "digest"),
    ],
)
def test_a_method_json_that_was_changed_names_the_field(make, tmp_path, change, field):
    create("knn").fit(make()).save(tmp_path / "state")
    file = tmp_path / "state" / "method.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(DataError, match=rf"method\.json: field '{field}'"):
        methods.load(tmp_path / "state")


def test_arrays_that_were_changed_or_damaged_are_refused(make, tmp_path):
    create("knn").fit(make()).save(tmp_path / "state")
    arrays = tmp_path / "state" / "state.safetensors"
    save_file({name: values[:1] for name, values in load_file(arrays).items()}, arrays)
    with pytest.raises(DataError, match=r"method\.json: field 'digest'.*fit again"):
        methods.load(tmp_path / "state")
    arrays.write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"state\.safetensors"):
        methods.load(tmp_path / "state")


def test_a_score_that_is_not_a_number_names_the_state(make, tmp_path):
    regions = make()
    create("knn").fit(regions).save(tmp_path / "state")
    loaded = methods.load(tmp_path / "state")
    loaded.stored_[:] = np.nan
    with pytest.raises(DataError, match=r"method\.json: field 'score': knn gives NaN for row 0"):
        loaded.score(regions)


def test_importing_the_methods_loads_no_heavy_library():
    program = (
        "import sys, farther.methods as m; m.create('msp');"
        "print([n for n in ('torch', 'sklearn', 'scipy.stats', 'scipy.linalg', 'faiss') "
        "if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_method_is_imported_without_the_others():
    program = "import sys, farther.methods as m; m.create('mls'); assert 'knn' in m.names();"
    program += (
        "print(sorted({f'farther.methods.{name}' for name in m.names()}.intersection(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['farther.methods.mls']"


def _without(regions: Regions, method: methods.Method) -> Regions:
    """Regions with meaningless logits and labels where the method does not declare their use."""
    columns = regions.columns()
    if "logits" not in method.inputs:
        columns["logits"] = np.ones_like(regions.logits)
    if "labels" not in method.inputs:
        columns["label"] = np.zeros_like(regions.label)
    if "score" not in method.inputs:
        columns["score"] = np.full_like(regions.score, 0.5)
    return Regions(header=regions.header, **columns)


def _relabelled(regions: Regions, change) -> Regions:
    return Regions(header=regions.header, **{**regions.columns(), "label": change(regions.label)})


def _one_of_class(regions: Regions, label: int) -> Regions:
    members = np.flatnonzero(regions.label == label)
    return regions[np.setdiff1d(np.arange(len(regions)), members[1:])]


def _with_features(regions: Regions, change) -> Regions:
    features = change(regions.features).astype(np.float32)
    logits = features @ regions.weight.T + regions.bias
    columns = {"features": features, "latent": features, "logits": logits}
    return Regions(header=regions.header, **{**regions.columns(), **columns})


def _with_logits(regions: Regions, change) -> Regions:
    return Regions(header=regions.header, **{**regions.columns(), "logits": change(regions.logits)})
