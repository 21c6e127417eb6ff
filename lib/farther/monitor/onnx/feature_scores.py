"""The scores of features and activations in PyTorch, for graphs; see `farther.monitor.onnx.scores`."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from farther.errors import ParameterError
from farther.methods import (
    activations,
    dice,
    fdbd,
    gradnorm,
    knn,
    lard,
    mahalanobis,
    mds_ensemble,
    nnguide,
    react,
    relation,
    relative_mahalanobis,
    residual,
    scale,
    she,
    vim,
)
from farther.methods.ash import ASH
from farther.monitor.onnx.rows import Rows, constant, number, read, squares, unit

#: Standard deviations by which the rounding of float32 may move a whitened vector.
MOST_ROUNDING = 0.1


def of_gradnorm(method: gradnorm.GradNorm, rows: Rows) -> Tensor:
    """See `gradnorm`."""
    temperature = number(method.temperature)
    p = (rows.logits(method.background) / temperature).softmax(dim=1)
    outputs = (p - number(1 / int(p.shape[1]))).abs().sum(dim=1)
    return rows.vectors("features").abs().sum(dim=1) * outputs / temperature


def of_react(method: react.ReAct, rows: Rows) -> Tensor:
    """See `react`."""
    weight, bias = rows.last_layer(method.counted_background)
    return (torch.minimum(rows.vectors("features"), number(method.threshold_)) @ weight + bias).logsumexp(dim=1)


def of_dice(method: dice.DICE, rows: Rows) -> Tensor:
    """See `dice` and `dice_react`."""
    h = rows.vectors("features")
    h = torch.minimum(h, number(method.threshold_)) if isinstance(method, dice.DICEReAct) else h
    return (h @ constant(method.weight_.T) + constant(method.bias_)).logsumexp(dim=1)


def of_scale(method: scale.Scale, rows: Rows) -> Tensor:
    """See `scale`."""
    weight, bias = rows.last_layer(method.background)
    h = rows.vectors("features")
    kept = h.topk(activations.kept_count(int(h.shape[1]), method.percentile), dim=1).values
    return (h * sharpening(h.sum(dim=1), kept.sum(dim=1)) @ weight + bias).logsumexp(dim=1)


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
    ratio = torch.where(after != 0, before / torch.where(after != 0, after, torch.ones_like(after)), 0.0)
    return ratio.clamp(max=activations.LARGEST_EXPONENT).exp()[:, None]


def of_she(method: she.SHE, rows: Rows) -> Tensor:
    """See `she`."""
    return (rows.vectors("features") * constant(method.patterns_)[rows.columns["label"]]).sum(dim=1)


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


def of_mahalanobis(method: mahalanobis.Mahalanobis, rows: Rows) -> Tensor:
    """See `mahalanobis`."""
    return -distances(method, read(method, rows) - constant(method.mean_))


def of_relative_mahalanobis(method: relative_mahalanobis.RelativeMahalanobis, rows: Rows) -> Tensor:
    """See `relative_mahalanobis`."""
    centred = read(method, rows) - constant(method.mean_)
    return squares(centred @ constant(method.all_whitening_)) - distances(method, centred)


def of_mds_ensemble(method: mds_ensemble.MDSEnsemble, rows: Rows) -> Tensor:
    """See `mds_ensemble`."""
    layers = torch.stack([of_mahalanobis(part, rows) for part in method.fitted_parts()], dim=1)
    return layers @ constant(method.weights_)


def components(method: lard.Latent, rows: Rows) -> Tensor:
    """Principal components of the latent activations, (N, components)."""
    o = read(method, rows, "latent")
    return o if method.components is None else (o - constant(method.latent_mean_)) @ constant(method.components_)


def of_lard_mahalanobis(method: lard.LardMahalanobis, rows: Rows) -> Tensor:
    """See `lard_mahalanobis`."""
    return -distances(method, components(method, rows) - constant(method.mean_))


def of_lard_knn(method: lard.LardKNN, rows: Rows) -> Tensor:
    """See `lard_knn`."""
    v = components(method, rows)
    return neighbours(method, v if method.protocol == "paper" else unit(v))


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


def of_vim(method: vim.ViM, rows: Rows) -> Tensor:
    """See `vim`."""
    return rows.logits(method.counted_background).logsumexp(dim=1) - number(method.alpha_) * residuals(method, rows)


def of_residual(method: residual.Residual, rows: Rows) -> Tensor:
    """See `residual`."""
    return -residuals(method, rows)


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


def of_nnguide(method: nnguide.NNGuide, rows: Rows) -> Tensor:
    """See `nnguide`."""
    u = unit(rows.vectors("features")).float()
    guidance = (u @ constant(method.bank_.T)).topk(method.k, dim=1).values.double().mean(dim=1)
    return guidance * rows.logits(method.background).logsumexp(dim=1)


def of_relation(method: relation.Relation, rows: Rows) -> Tensor:
    """See `relation`."""
    u, p = unit(rows.vectors("features")).float(), rows.logits(method.background).softmax(dim=1).float()
    related = (u @ constant(method.stored_.T)) * (p @ constant(method.probabilities_.T))
    related = related * (related > method.threshold)
    return (related**method.power).double().sum(dim=1)
