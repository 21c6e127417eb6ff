"""Papers that several methods are from."""

from __future__ import annotations

from farther.methods.base import Publication

FMIYC = Publication(
    "FindMeIfYouCan: Bringing Open Set metrics to near, far and farther Out-of-Distribution Object "
    "detection",
    2025,
    "https://arxiv.org/abs/2506.14008",
)

MDS = Publication(
    "A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks",
    2018,
    "https://arxiv.org/abs/1807.03888",
    code="https://github.com/pokaxpoka/deep_Mahalanobis_detector",
)

SAOD = Publication(
    "Towards Building Self-Aware Object Detectors via Reliable Uncertainty Quantification and "
    "Calibration",
    2023,
    "https://arxiv.org/abs/2307.00934",
    code="https://github.com/fiveai/saod",
)

SCALING = Publication(
    "Scaling Out-of-Distribution Detection for Real-World Settings",
    2022,
    "https://arxiv.org/abs/1911.11132",
    code="https://github.com/hendrycks/anomaly-seg",
)

VIM = Publication(
    "ViM: Out-Of-Distribution with Virtual-logit Matching",
    2022,
    "https://arxiv.org/abs/2203.10807",
    code="https://github.com/haoqiwang/vim",
)
