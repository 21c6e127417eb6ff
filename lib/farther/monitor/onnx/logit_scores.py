"""The scores of confidences and logits in PyTorch, for graphs; see `farther.monitor.onnx.scores`."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from farther.methods import (
    confidence,
    dempster_shafer,
    energy,
    entropy,
    gen,
    kl_matching,
    mls,
    msp,
    temperature_scaling,
    vos,
)
from farther.monitor.onnx.rows import Rows, constant, number, softplus


def of_confidence(method: confidence.Confidence, rows: Rows) -> Tensor:
    """See `confidence`."""
    return rows.columns["confidence"].double()


def of_msp(method: msp.MSP, rows: Rows) -> Tensor:
    """See `msp`."""
    z = rows.logits(method.counted_background, method.activation)
    return z.max(dim=1).values.sigmoid() if rows.is_sigmoid(method.activation) else z.softmax(dim=1).max(dim=1).values


def of_temperature_scaling(method: temperature_scaling.TemperatureScaling, rows: Rows) -> Tensor:
    """See `temperature_scaling`."""
    z = rows.logits(method.background, method.activation)
    z = z / number(method.temperature or method.temperature_)
    return z.max(dim=1).values.sigmoid() if rows.is_sigmoid(method.activation) else z.softmax(dim=1).max(dim=1).values


def of_mls(method: mls.MLS, rows: Rows) -> Tensor:
    """See `mls`."""
    return rows.logits(method.background).max(dim=1).values


def of_energy(method: energy.Energy, rows: Rows) -> Tensor:
    """See `energy`."""
    temperature = number(method.temperature)
    z = rows.logits(method.counted_background, method.activation) / temperature
    return temperature * (softplus(z).sum(dim=1) if rows.is_sigmoid(method.activation) else z.logsumexp(dim=1))


def of_dempster_shafer(method: dempster_shafer.DempsterShafer, rows: Rows) -> Tensor:
    """See `dempster_shafer`."""
    z = rows.logits(method.counted_background)
    return -(number(math.log(int(z.shape[1]))) - z.logsumexp(dim=1)).sigmoid()


def of_entropy(method: entropy.Entropy, rows: Rows) -> Tensor:
    """See `entropy`."""
    z = rows.logits(method.counted_background, method.activation)
    if rows.is_sigmoid(method.activation):
        z = z.max(dim=1, keepdim=True).values if method.sigmoids == "largest" else z
        return -(z.sigmoid() * softplus(-z) + (-z).sigmoid() * softplus(z)).mean(dim=1)
    log_p = z.log_softmax(dim=1)
    return (log_p.exp() * log_p).sum(dim=1)


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


def of_kl_matching(method: kl_matching.KLMatching, rows: Rows) -> Tensor:
    """See `kl_matching`."""
    log_p = rows.logits(method.background).log_softmax(dim=1)
    p = log_p.exp()
    return -((p * log_p).sum(dim=1, keepdim=True) - p @ constant(method.log_typical_.T)).min(dim=1).values


def of_vos(method: vos.VOS, rows: Rows) -> Tensor:
    """See `vos`."""
    counted = np.flatnonzero(method.energy_weight_ > 0)
    z = rows.logits(method.background)[:, constant(counted)]
    weighted = z + constant(np.log(method.energy_weight_[counted]))
    return number(method.slope_) * weighted.logsumexp(dim=1) + number(method.intercept_)
