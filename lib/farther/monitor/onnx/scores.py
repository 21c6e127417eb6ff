"""The scores of methods in PyTorch, for graphs: each function computes what `_score` of its method computes.

They compute in float64, as the methods do, on constants of the fitted state. Methods whose score is not a short
sequence of sums, products and sorting are not here; `scorer` refuses them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from farther.errors import ParameterError
from farther.methods import (
    activations,
    confidence,
    dempster_shafer,
    dice,
    energy,
    entropy,
    fdbd,
    gen,
    gradnorm,
    kl_matching,
    knn,
    lard,
    mahalanobis,
    mds_ensemble,
    mls,
    msp,
    nnguide,
    react,
    relation,
    relative_mahalanobis,
    residual,
    scale,
    she,
    temperature_scaling,
    vim,
    vos,
)
from farther.methods.ash import ASH
from farther.methods.base import Method
from farther.monitor.onnx.rows import Rows, constant, number, read, softplus, squares, unit

Scorer = Callable[[Any, Rows], Tensor]

#: By class, not by name: a user-defined method may derive from one of these and compute something else.
SCORERS: dict[type[Method], Scorer] = {}

#: Standard deviations by which the rounding of float32 may move a whitened vector.
MOST_ROUNDING = 0.1


def scores(*classes: type[Method]) -> Callable[[Scorer], Scorer]:
    """Decorator of the function that computes the score of methods."""

    def add(function: Scorer) -> Scorer:
        SCORERS.update(dict.fromkeys(classes, function))
        return function

    return add


def scorer(method: Method) -> Scorer:
    """The function that computes a method's score.

    Raises:
        ParameterError: there is none.
    """
    found = SCORERS.get(type(method))
    if found is None:
        known = ", ".join(sorted(cls.name for cls in SCORERS))
        raise ParameterError(
            f"method {method.name!r} cannot be exported: its score is not written as a graph. These are: {known}"
        )
    return found


@scores(confidence.Confidence)
def of_confidence(method: confidence.Confidence, rows: Rows) -> Tensor:
    """See `confidence`."""
    return rows.columns["confidence"].double()


@scores(msp.MSP)
def of_msp(method: msp.MSP, rows: Rows) -> Tensor:
    """See `msp`."""
    z = rows.logits(method.counted_background, method.activation)
    return z.max(dim=1).values.sigmoid() if rows.is_sigmoid(method.activation) else z.softmax(dim=1).max(dim=1).values


@scores(temperature_scaling.TemperatureScaling)
def of_temperature_scaling(method: temperature_scaling.TemperatureScaling, rows: Rows) -> Tensor:
    """See `temperature_scaling`."""
    z = rows.logits(method.background, method.activation)
    z = z / number(method.temperature or method.temperature_)
    return z.max(dim=1).values.sigmoid() if rows.is_sigmoid(method.activation) else z.softmax(dim=1).max(dim=1).values


@scores(mls.MLS)
def of_mls(method: mls.MLS, rows: Rows) -> Tensor:
    """See `mls`."""
    return rows.logits(method.background).max(dim=1).values


@scores(energy.Energy)
def of_energy(method: energy.Energy, rows: Rows) -> Tensor:
    """See `energy`."""
    temperature = number(method.temperature)
    z = rows.logits(method.counted_background, method.activation) / temperature
    return temperature * (softplus(z).sum(dim=1) if rows.is_sigmoid(method.activation) else z.logsumexp(dim=1))


@scores(dempster_shafer.DempsterShafer)
def of_dempster_shafer(method: dempster_shafer.DempsterShafer, rows: Rows) -> Tensor:
    """See `dempster_shafer`."""
    z = rows.logits(method.counted_background)
    return -(number(math.log(int(z.shape[1]))) - z.logsumexp(dim=1)).sigmoid()


@scores(entropy.Entropy)
def of_entropy(method: entropy.Entropy, rows: Rows) -> Tensor:
    """See `entropy`."""
    z = rows.logits(method.counted_background, method.activation)
    if rows.is_sigmoid(method.activation):
        z = z.max(dim=1, keepdim=True).values if method.sigmoids == "largest" else z
        return -(z.sigmoid() * softplus(-z) + (-z).sigmoid() * softplus(z)).mean(dim=1)
    log_p = z.log_softmax(dim=1)
    return (log_p.exp() * log_p).sum(dim=1)


@scores(gen.GEN)
def of_gen(method: gen.GEN, rows: Rows) -> Tensor:
    """See `gen`."""
    z = rows.logits(method.counted_background, method.activation)
    if rows.is_sigmoid(method.activation):
        p, rest = z.sigmoid(), (-z).sigmoid()
    else:
        p = z.softmax(dim=1)
        sure = p > 0.5
        rest = torch.where(sure, (p * ~sure).sum(dim=1, keepdim=True), 1 - p)
    is_paper = method.protocol == "paper"
    gamma = method.gamma if method.gamma is not None else 0.5 if is_paper else 0.1
    m = method.m if method.m is not None or is_paper else len(rows.header.known_classes)
    terms = (p * rest) ** number(gamma)
    if m is not None and m < int(terms.shape[1]):
        terms = terms.gather(1, p.topk(m, dim=1).indices)
    return -terms.sum(dim=1)


@scores(kl_matching.KLMatching)
def of_kl_matching(method: kl_matching.KLMatching, rows: Rows) -> Tensor:
    """See `kl_matching`."""
    log_p = rows.logits(method.background).log_softmax(dim=1)
    p = log_p.exp()
    return -((p * log_p).sum(dim=1, keepdim=True) - p @ constant(method.log_typical_.T)).min(dim=1).values


@scores(vos.VOS)
def of_vos(method: vos.VOS, rows: Rows) -> Tensor:
    """See `vos`."""
    counted = np.flatnonzero(method.energy_weight_ > 0)
    z = rows.logits(method.background)[:, constant(counted)]
    weighted = z + constant(np.log(method.energy_weight_[counted]))
    return number(method.slope_) * weighted.logsumexp(dim=1) + number(method.intercept_)


@scores(gradnorm.GradNorm)
def of_gradnorm(method: gradnorm.GradNorm, rows: Rows) -> Tensor:
    """See `gradnorm`."""
    temperature = number(method.temperature)
    p = (rows.logits(method.background) / temperature).softmax(dim=1)
    outputs = (p - number(1 / int(p.shape[1]))).abs().sum(dim=1)
    return rows.vectors("features").abs().sum(dim=1) * outputs / temperature


@scores(react.ReAct)
def of_react(method: react.ReAct, rows: Rows) -> Tensor:
    """See `react`."""
    weight, bias = rows.last_layer(method.counted_background)
    return (torch.minimum(rows.vectors("features"), number(method.threshold_)) @ weight + bias).logsumexp(dim=1)


@scores(dice.DICE, dice.DICEReAct)
def of_dice(method: dice.DICE, rows: Rows) -> Tensor:
    """See `dice` and `dice_react`."""
    h = rows.vectors("features")
    h = torch.minimum(h, number(method.threshold_)) if isinstance(method, dice.DICEReAct) else h
    return (h @ constant(method.weight_.T) + constant(method.bias_)).logsumexp(dim=1)


@scores(scale.Scale)
def of_scale(method: scale.Scale, rows: Rows) -> Tensor:
    """See `scale`."""
    weight, bias = rows.last_layer(method.background)
    h = rows.vectors("features")
    kept = h.topk(activations.kept_count(int(h.shape[1]), method.percentile), dim=1).values
    return (h * sharpening(h.sum(dim=1), kept.sum(dim=1)) @ weight + bias).logsumexp(dim=1)


@scores(ASH)
def of_ash(method: ASH, rows: Rows) -> Tensor:
    """See `ash`; with the paper's protocol, whose kept activations do not depend on the order of equal ones."""
    if method.protocol != "paper":
        problem = "with protocol 'published-code' which of equal activations are kept is arbitrary"
        raise ParameterError(f"method 'ash' cannot be exported: {problem}")
    weight, bias = rows.last_layer(method.counted_background)
    h = rows.vectors("features")
    kept, sums = h >= number(method.threshold_), h.sum(dim=1)
    if method.variant == "b":
        h = kept * (sums / kept.sum(dim=1).clamp(min=1))[:, None]
    else:
        h = h * kept
        h = h * sharpening(sums, h.sum(dim=1)) if method.variant == "s" else h
    return (h @ weight + bias).logsumexp(dim=1)


def sharpening(before: Tensor, after: Tensor) -> Tensor:
    """See `farther.methods.activations.sharpening`."""
    ratio = torch.where(after != 0, before / after, 0.0)
    return ratio.clamp(max=activations.LARGEST_EXPONENT).exp()[:, None]


@scores(she.SHE)
def of_she(method: she.SHE, rows: Rows) -> Tensor:
    """See `she`."""
    return (rows.vectors("features") * constant(method.patterns_)[rows.columns["label"]]).sum(dim=1)


@scores(fdbd.FDBD)
def of_fdbd(method: fdbd.FDBD, rows: Rows) -> Tensor:
    """See `fdbd`."""
    z = rows.logits(method.background)
    largest = z.max(dim=1, keepdim=True)
    distances = (largest.values - z) * constant(method.inverse_gaps_)[largest.indices[:, 0]]
    to_mean = squares(rows.vectors("features") - constant(method.mean_)).sqrt()
    return distances.sum(dim=1) / ((int(z.shape[1]) - 1) * torch.maximum(to_mean, number(fdbd.SMALLEST)))


def distances(method: mahalanobis.Mahalanobis, centred: Tensor) -> Tensor:
    """Squared Mahalanobis distances to the nearest class mean, (N,), of h − mean."""
    scale = max(np.linalg.norm(method.mean_), np.linalg.norm(getattr(method, "latent_mean_", 0.0)))
    rounding = np.linalg.norm(method.whitening_) * np.finfo(np.float32).eps * scale
    if rounding > MOST_ROUNDING:
        problem = f"the covariance is so nearly singular that rounding moves vectors by {rounding:.2g} deviations"
        raise ParameterError(f"method {method.name!r} cannot be exported: {problem}")
    white, centres = centred @ constant(method.whitening_), method.centres_
    to_centres = constant((centres * centres).sum(axis=1)) - 2 * (white @ constant(centres.T))
    return (squares(white) + to_centres.min(dim=1).values).clamp(min=0)


@scores(mahalanobis.Mahalanobis)
def of_mahalanobis(method: mahalanobis.Mahalanobis, rows: Rows) -> Tensor:
    """See `mahalanobis`."""
    return -distances(method, read(method, rows) - constant(method.mean_))


@scores(relative_mahalanobis.RelativeMahalanobis)
def of_relative_mahalanobis(method: relative_mahalanobis.RelativeMahalanobis, rows: Rows) -> Tensor:
    """See `relative_mahalanobis`."""
    centred = read(method, rows) - constant(method.mean_)
    return squares(centred @ constant(method.all_whitening_)) - distances(method, centred)


@scores(mds_ensemble.MDSEnsemble)
def of_mds_ensemble(method: mds_ensemble.MDSEnsemble, rows: Rows) -> Tensor:
    """See `mds_ensemble`."""
    layers = torch.stack([of_mahalanobis(part, rows) for part in method.fitted_parts()], dim=1)
    return layers @ constant(method.weights_)


def components(method: lard.Latent, rows: Rows) -> Tensor:
    """Principal components of the latent activations, (N, components)."""
    o = read(method, rows, "latent")
    return o if method.components is None else (o - constant(method.latent_mean_)) @ constant(method.components_)


@scores(lard.LardMahalanobis)
def of_lard_mahalanobis(method: lard.LardMahalanobis, rows: Rows) -> Tensor:
    """See `lard_mahalanobis`."""
    return -distances(method, components(method, rows) - constant(method.mean_))


@scores(lard.LardKNN)
def of_lard_knn(method: lard.LardKNN, rows: Rows) -> Tensor:
    """See `lard_knn`."""
    v = components(method, rows)
    return neighbours(method, v if method.protocol == "paper" else unit(v))


@scores(lard.LardKDE)
def of_lard_kde(method: lard.LardKDE, rows: Rows) -> Tensor:
    """See `lard_kde`."""
    v, stored = components(method, rows) / number(method.bandwidth), method.stored_ / method.bandwidth
    exponents = v @ constant(stored.T) - constant((stored * stored).sum(axis=1) / 2)
    beside = math.log(len(stored)) + int(v.shape[1]) * math.log(method.bandwidth * math.sqrt(2 * math.pi))
    return exponents.logsumexp(dim=1) - squares(v) / 2 - number(beside)


def residuals(method: vim.ViM, rows: Rows) -> Tensor:
    """Norm of the residual, (N,)."""
    left = rows.vectors("features") @ constant(method.residual_) - constant(method.origin_ @ method.residual_)
    return squares(left).sqrt()


@scores(vim.ViM)
def of_vim(method: vim.ViM, rows: Rows) -> Tensor:
    """See `vim`."""
    return rows.logits(method.counted_background).logsumexp(dim=1) - number(method.alpha_) * residuals(method, rows)


@scores(residual.Residual)
def of_residual(method: residual.Residual, rows: Rows) -> Tensor:
    """See `residual`."""
    return -residuals(method, rows)


@scores(knn.KNN)
def of_knn(method: knn.KNN, rows: Rows) -> Tensor:
    """See `knn`."""
    return neighbours(method, unit(read(method, rows)))


def neighbours(method: knn.KNN, u: Tensor) -> Tensor:
    """The score of vectors, (N,): the search compares float32, and the distance that it finds is float64."""
    if method.index != "exact":
        problem = "an approximate index is a search in cells, not a matrix product; use index 'exact'"
        raise ParameterError(f"method {method.name!r} cannot be exported: {problem}")
    u, stored = u.float(), constant(method.stored_)
    norms = constant((method.stored_.astype(np.float64) ** 2).sum(axis=1).astype(np.float32))
    near = (norms - 2 * (u @ stored.T)).topk(method.k, dim=1, largest=False).indices[:, -1]
    found = squares(u.double() - stored[near].double())
    return -found.sqrt() if method.protocol == "paper" else -found


@scores(nnguide.NNGuide)
def of_nnguide(method: nnguide.NNGuide, rows: Rows) -> Tensor:
    """See `nnguide`."""
    u = unit(rows.vectors("features")).float()
    guidance = (u @ constant(method.bank_.T)).topk(method.k, dim=1).values.double().mean(dim=1)
    return guidance * rows.logits(method.background).logsumexp(dim=1)


@scores(relation.Relation)
def of_relation(method: relation.Relation, rows: Rows) -> Tensor:
    """See `relation`."""
    u, p = unit(rows.vectors("features")).float(), rows.logits(method.background).softmax(dim=1).float()
    related = (u @ constant(method.stored_.T)) * (p @ constant(method.probabilities_.T))
    related = related * (related > method.threshold)
    return (related**method.power).double().sum(dim=1)
