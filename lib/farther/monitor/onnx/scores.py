"""The scores of methods in PyTorch, for graphs: each function computes what `_score` of its method computes.

They compute in float64, as the methods do, on constants of the fitted state. Methods whose score is not a short
sequence of sums, products and sorting are not here; `scorer` refuses them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from farther.errors import ParameterError
from farther.methods import (
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
from farther.monitor.onnx import feature_scores, logit_scores
from farther.monitor.onnx.rows import Rows

Scorer = Callable[[Any, Rows], Tensor]

#: By class, not by name: a user-defined method may derive from one of these and compute something else.
SCORERS: dict[type[Method], Scorer] = {
    confidence.Confidence: logit_scores.of_confidence,
    msp.MSP: logit_scores.of_msp,
    temperature_scaling.TemperatureScaling: logit_scores.of_temperature_scaling,
    mls.MLS: logit_scores.of_mls,
    energy.Energy: logit_scores.of_energy,
    dempster_shafer.DempsterShafer: logit_scores.of_dempster_shafer,
    entropy.Entropy: logit_scores.of_entropy,
    gen.GEN: logit_scores.of_gen,
    kl_matching.KLMatching: logit_scores.of_kl_matching,
    vos.VOS: logit_scores.of_vos,
    gradnorm.GradNorm: feature_scores.of_gradnorm,
    react.ReAct: feature_scores.of_react,
    dice.DICE: feature_scores.of_dice,
    dice.DICEReAct: feature_scores.of_dice,
    scale.Scale: feature_scores.of_scale,
    ASH: feature_scores.of_ash,
    she.SHE: feature_scores.of_she,
    fdbd.FDBD: feature_scores.of_fdbd,
    mahalanobis.Mahalanobis: feature_scores.of_mahalanobis,
    relative_mahalanobis.RelativeMahalanobis: feature_scores.of_relative_mahalanobis,
    mds_ensemble.MDSEnsemble: feature_scores.of_mds_ensemble,
    lard.LardMahalanobis: feature_scores.of_lard_mahalanobis,
    lard.LardKNN: feature_scores.of_lard_knn,
    lard.LardKDE: feature_scores.of_lard_kde,
    vim.ViM: feature_scores.of_vim,
    residual.Residual: feature_scores.of_residual,
    knn.KNN: feature_scores.of_knn,
    nnguide.NNGuide: feature_scores.of_nnguide,
    relation.Relation: feature_scores.of_relation,
}


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
