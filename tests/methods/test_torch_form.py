"""Scores of tensors: the same formula gives what it gives for a table."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.methods.test_every_method import NAMES, create
from tests.support.cases import slow_but
from tests.support.messages import NOT_FITTED

from farther import Method, methods, register
from farther.errors import DataError, ParameterError
from farther.methods import FitError
from farther.methods.base import METHODS
from farther.methods.rows import RegionRows, Rows
from farther.tables import Regions

#: Methods that compute in NumPy only; docs/methods.md says why.
ONLY_NUMPY = {"box_uncertainty", "joint_entropy", "imported"}
WITH_TORCH = [name for name in NAMES if name not in ONLY_NUMPY]

#: Largest difference between PyTorch and NumPy in float64, as a share of the scores' standard
#: deviation.
LARGEST = 1e-10
#: Of `relation`, whose products NumPy adds up in float32.
LARGEST_OF_RELATION = 1e-6
#: In float32.
LARGEST_IN_FLOAT32 = 1e-4

#: Headers of heads that scores read in different ways.
HEADS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "a background column": {"background": True},
    "a sigmoid head": {"activation": "sigmoid"},
    "classes that mean unknown objects": {"unknown_columns": (2, 3)},
}

#: Parameters of variants that compute something else.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "ash": [
        {"variant": variant, "protocol": protocol}
        for variant in "pb"
        for protocol in ("paper", "published-code")
    ],
    "ddu": [{"protocol": "published-code"}],
    "energy": [{"temperature": 2.0}, {"activation": "detector"}],
    "entropy": [{"activation": "detector", "sigmoids": "largest"}],
    "gen": [{"protocol": "published-code"}, {"m": 2}, {"activation": "detector"}],
    "knn": [{"k": 1, "protocol": "published-code"}, {"layer": "latent"}],
    "lard_knn": [{"components": 3, "protocol": "published-code"}],
    "lard_mahalanobis": [{"components": None}],
    "msp": [{"activation": "detector"}],
    "mds_ensemble": [{"protocol": "published-code"}],
    "oodl": [{"kernel": "nystroem"}],
    "relation": [{"power": 2.0}],
}
CASES = [(name, {}) for name in WITH_TORCH]
CASES += [(name, params) for name, several in VARIANTS.items() for params in several]


def made(name: str, params: dict[str, Any]) -> Method:
    if params:
        return methods.create(name, **params)
    return create(name)


def tensors(regions: Regions, method: Method) -> dict[str, torch.Tensor]:
    """The columns that a method reads."""
    names = {"logits", "score", *method.columns}
    columns = {name: torch.from_numpy(np.array(regions.array(name))) for name in names}
    columns["label"] = torch.from_numpy(regions.label.astype(np.int64))
    return columns


def batch(columns: dict[str, torch.Tensor], rows: slice) -> dict[str, torch.Tensor]:
    return {key: column[rows] for key, column in columns.items()}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("name", "params"), CASES)
def test_tensors_get_the_scores_of_the_table_in_batches_of_any_size(name, params, head, make):
    method = made(name, params).fit(make(seed=1, **HEADS[head]))
    regions = make(40, seed=2, shift=2.0, **HEADS[head])
    expected = method.score(regions)
    columns = tensors(regions, method)
    before = copy.deepcopy(columns)
    ordinary = expected > -1e29  # a row labelled unknown is below all others
    spread = expected[ordinary].std()
    module = method.to_torch()
    limit = LARGEST_OF_RELATION if name == "relation" else LARGEST
    with torch.inference_mode():
        for size in (1, 7, len(regions)):
            batches = [
                batch(columns, slice(first, first + size)) for first in range(0, len(regions), size)
            ]
            scores = torch.cat([module(**part) for part in batches])
            assert scores.dtype == torch.float64
            np.testing.assert_allclose(
                scores[ordinary], expected[ordinary], rtol=0, atol=limit * spread
            )
            np.testing.assert_allclose(scores[~ordinary], expected[~ordinary], rtol=1e-6)
    for key, column in columns.items():
        assert torch.equal(column, before[key])
    if method.only_float64:
        with pytest.raises(ParameterError, match=f"'{name}' needs torch.float64"):
            method.to_torch(dtype=torch.float32)
        return
    single = method.to_torch(dtype=torch.float32)(**columns)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(
        single[ordinary], expected[ordinary], rtol=0, atol=LARGEST_IN_FLOAT32 * spread
    )


def test_negative_prompts_count_in_tensors_too(make):
    regions = make(40, seed=2, unknown_columns=(2, 3, 4))
    regions = regions[np.isin(regions.label, (0, 1))]
    method = methods.create("neg_label", groups=1, temperature=0.5)
    module = method.to_torch(header=regions.header)
    scores = module(features=torch.from_numpy(np.array(regions.features)), **{
        "label": torch.from_numpy(regions.label.astype(np.int64)),
        "score": torch.from_numpy(np.array(regions.score)),
    })  # fmt: skip
    np.testing.assert_allclose(scores, method.score(regions), rtol=1e-12)


def test_every_method_has_a_form_in_pytorch_or_says_why_not(make):
    for name in NAMES:
        assert bool(create(name).no_torch_form()) == (name in ONLY_NUMPY)
    with pytest.raises(
        ParameterError, match="method 'box_uncertainty' has no form in PyTorch: it reads variances"
    ):
        methods.create("box_uncertainty").to_torch()
    with pytest.raises(ParameterError, match="'knn' has no form in PyTorch: an approximate index"):
        methods.create("knn", index="approximate").to_torch()


def test_without_a_table_all_logits_are_those_of_known_classes():
    logits = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(
        methods.create("energy").to_torch()(logits), torch.logsumexp(logits, 1), rtol=1e-6
    )
    found = methods.create("dempster_shafer").to_torch()(logits[1:])
    np.testing.assert_allclose(found, [-0.5])  # −K / (K + Σ exp)


@pytest.mark.parametrize("name", ["knn", "react", "mds_ensemble", "vim"])
def test_the_state_dict_holds_the_fitted_state(name, make):
    first, second = (create(name).fit(make(seed=seed)) for seed in (1, 2))
    columns = tensors(make(20, seed=3), first)
    module, other = first.to_torch(), second.to_torch()
    assert not torch.allclose(module(**columns), other(**columns))
    other.load_state_dict(module.state_dict())
    assert torch.equal(module(**columns), other(**columns))


@pytest.mark.filterwarnings("ignore:Guards may run slower")
@pytest.mark.parametrize("name", slow_but(("energy", "mahalanobis", "vim"), WITH_TORCH, 15))
def test_the_module_is_compiled_as_one_graph(name, make):
    method = create(name).fit(make(seed=1))
    columns = {
        key: column
        for key, column in tensors(make(20), method).items()
        if key in {"label", *method.inputs}
    }
    torch.compiler.reset()  # of the graphs of other methods
    compiled = torch.compile(method.to_torch(), backend="eager", fullgraph=True)
    np.testing.assert_allclose(compiled(**columns), method.to_torch()(**columns), rtol=1e-12)


def test_rows_come_in_parts_that_fit_into_memory(make, monkeypatch):
    monkeypatch.setattr("farther.methods.torch_form.PRODUCTS", 5 * 300)
    method = create("relation").fit(make(seed=1))
    regions = make(40, seed=2)
    scores = method.to_torch()(**tensors(regions, method))
    np.testing.assert_allclose(scores, method.score(regions), rtol=1e-6)


def test_no_rows_get_no_scores(make):
    method = create("knn").fit(make(seed=1))
    assert method.to_torch()(features=torch.zeros(0, 12)).shape == (0,)


def test_a_module_that_is_moved_computes_in_its_new_type(make):
    method = create("knn").fit(make(seed=1))
    columns = tensors(make(20), method)
    module = method.to_torch(dtype=torch.float32).double()
    assert module.dtype == torch.float64
    np.testing.assert_allclose(module(**columns), method.to_torch()(**columns), rtol=1e-6)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a column is missing": (
        {"features": None},
        "field 'features': vim needs it, and it was not given",
    ),
    "another width": (
        {"features": torch.zeros(4, 5)},
        "field 'features': 5 values per row, but the last layer takes 12",
    ),
    "another number of logits": (
        {"logits": torch.zeros(4, 7)},
        "field 'logits': 7 logits, but 5 classes",
    ),
    "another number of rows": ({"logits": torch.zeros(3, 5)}, "rows, but another column has"),
    "integers": (
        {"features": torch.zeros(4, 12, dtype=torch.int64)},
        "field 'features': expected floating-point numbers",
    ),
    "one vector": (
        {"features": torch.zeros(12)},
        r"field 'features': expected shape \(N, D\), found \(12,\)",
    ),
    "an array": (
        {"features": np.zeros((4, 12))},
        "field 'features': expected a tensor, found ndarray",
    ),
    "another device": (
        {"features": torch.zeros(4, 12, device="meta")},
        "field 'features': is on meta, but the method on cpu",
    ),
    "NaN": (
        {"features": torch.full((4, 12), torch.nan)},
        "row 0: field .features.: not a finite number: nan",
    ),
    "a name of no column": (
        {"feature": torch.zeros(4, 12)},
        "field 'feature': no such column; known: ",
    ),
}


@pytest.mark.parametrize("problem", WRONG)
def test_a_tensor_that_cannot_be_scored_is_named(problem, make):
    wrong, message = WRONG[problem]
    module = create("vim").fit(make(seed=1)).to_torch()
    with pytest.raises(DataError, match=message):
        module(**{"logits": torch.zeros(4, 5), "features": torch.zeros(4, 12), **wrong})


def test_other_widths_than_those_that_a_layer_was_fitted_on_are_refused(make):
    module = create("lard_knn").fit(make(seed=1)).to_torch()
    with pytest.raises(
        DataError, match="field 'latent': 9 values per row, but lard_knn was fitted on 16"
    ):
        module(latent=torch.zeros(4, 9))


def test_methods_of_another_state_or_detector_are_refused(make, tmp_path):
    with pytest.raises(FitError, match=NOT_FITTED):
        methods.create("knn").to_torch()
    regions = make(seed=1)
    react = create("react").fit(regions)
    with pytest.raises(
        DataError, match=r"field 'activation': react was fitted on softmax, this header has sigmoid"
    ):
        react.to_torch(header=replace(regions.header, activation="sigmoid"))
    react.save(tmp_path / "react")
    loaded = methods.load(tmp_path / "react")
    with pytest.raises(
        DataError, match=r"needs the last layer: write to_torch\(header=regions.header\)"
    ):
        loaded.to_torch()
    columns = tensors(regions, loaded)
    assert torch.equal(
        loaded.to_torch(header=regions.header)(**columns), react.to_torch()(**columns)
    )
    with pytest.raises(
        ParameterError, match=r"expected torch.float32 or torch.float64, found torch.float16"
    ):
        react.to_torch(dtype=torch.float16)


def test_a_device_without_float64_gets_float32_and_says_so(monkeypatch, make):
    monkeypatch.setattr("farther.methods.torch_form.ScoreModule.to", lambda module, device: module)
    with pytest.warns(UserWarning, match="mps has no float64: scores are computed in float32"):
        module = methods.create("energy").to_torch("mps")
    assert module.dtype == torch.float32
    with pytest.raises(ParameterError, match=r"mps has no float64; write dtype=torch.float32"):
        methods.create("energy").to_torch("mps", torch.float64)
    with pytest.raises(
        ParameterError, match="mps has no float64: its distances are moved by 10,000"
    ):
        create("openmax").fit(make()).to_torch("mps")


@pytest.fixture
def user_defined():
    """User-defined methods: one of its own, one that derives from farther's, one of NumPy alone."""
    before = dict(METHODS._classes)

    @register("margin_of_rows")
    class Margin(Method):
        needs: ClassVar[frozenset[str]] = frozenset({"logits"})

        def _score(self, rows):
            ordered = rows.xp.sort(rows.logits("drop"), axis=1)
            return ordered[:, -1] - ordered[:, -2]

    @register("twice_energy")
    class TwiceEnergy(methods.get("energy")):
        def _score(self, rows):
            return 2 * super()._score(rows)

    @register("widest_of_arrays")
    class Widest(Method):
        needs: ClassVar[frozenset[str]] = frozenset({"logits"})
        only_numpy: ClassVar[str] = "it calls NumPy"

        def _score(self, rows):
            return np.max(rows.logits("drop"), axis=1)

    yield Margin, TwiceEnergy, Widest
    METHODS._classes.clear()
    METHODS._classes.update(before)


def test_user_defined_methods_have_a_form_in_pytorch_unless_they_say_why_not(user_defined, make):
    margin, twice_energy, widest = user_defined
    regions = make(20)
    logits = torch.from_numpy(np.array(regions.logits))
    np.testing.assert_array_equal(
        twice_energy().score(regions), 2 * methods.create("energy").score(regions)
    )
    np.testing.assert_array_equal(widest().score(regions), regions.logits.max(axis=1))
    for method in (margin(), twice_energy()):
        np.testing.assert_allclose(method.to_torch()(logits), method.score(regions), rtol=1e-12)
    with pytest.raises(ParameterError, match="has no form in PyTorch: it calls NumPy"):
        widest().to_torch()


def test_rows_of_a_block_of_regions_are_its_columns(make):
    regions = make(10, background=True)
    rows = Rows.of(regions)
    assert Rows.of(rows) is rows
    assert isinstance(rows, RegionRows)
    np.testing.assert_array_equal(rows.features, regions.features)
    np.testing.assert_array_equal(rows.latent(), regions.latent)
    np.testing.assert_array_equal(rows.latent("patch"), regions.array("latent.patch"))
    np.testing.assert_array_equal(rows.logits("drop"), regions.logits[:, :5])
    weight, bias = rows.last_layer("keep")
    np.testing.assert_allclose(
        rows.features @ weight.T + bias, regions.logits, rtol=1e-4, atol=1e-4
    )


def test_gradients_reach_the_inputs(make):
    features = torch.from_numpy(np.array(make(5).features)).requires_grad_()
    method = create("mahalanobis").fit(make(seed=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.to_torch()(features=features).sum().backward()
    assert float(features.grad.abs().sum()) > 0


@pytest.mark.parametrize("label", [-1, 99])
def test_a_label_that_is_no_class_is_refused(label, make):
    regions = make(seed=1)
    module = create("she").fit(regions).to_torch()
    features = torch.from_numpy(np.array(regions.features[:2]))
    with pytest.raises(DataError, match=f"row 1: field 'label': {label} is not the index"):
        module(features=features, label=torch.tensor([0, label]))


@pytest.mark.filterwarnings("ignore:Guards may run slower")
def test_in_a_compiled_graph_a_row_that_cannot_be_scored_has_the_lowest_score():
    compiled = torch.compile(create("energy").to_torch(), backend="eager")
    logits = torch.tensor([[1.0, 2.0], [torch.nan, 1.0], [torch.inf, 1.0]])
    scores = compiled(logits=logits)
    assert scores[0] > 2
    assert scores[1:].tolist() == [-torch.finfo(torch.float64).max] * 2
