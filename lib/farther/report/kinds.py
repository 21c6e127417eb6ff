"""Kinds of OOD scores: of a detector that was not made for it, of its own label, of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farther import methods

POST_HOC, NATIVE, TEXT, IMPORTED = "post-hoc", "native", "text", "imported"

#: Inputs of a method that compare an image with texts, where the classes are texts.
_OF_CLASSES = frozenset({"logits", "last_layer"})


def kind_of(entry: Mapping[str, Any], name: str, detector: Mapping[str, Any]) -> str:
    """The kind of a method's score.

    Args:
        entry: Of section `methods` of params.yaml.
        name: Its name there.
        detector: The run's entry of section `detectors`.

    Returns:
        "native" for the detector's own label; "text" for scores from similarities to class names or
        prompts, of an open-vocabulary detector or of a pass of kind `crops`; "imported" for those
        that were made elsewhere; else "post-hoc". "text" and "post-hoc" end in " + native" where
        the detector labels objects as unknown, which are flagged with every method.
    """
    method = str(entry.get("method", name))
    if method == "native":
        return NATIVE
    if method == "imported":
        return IMPORTED
    labels = [*(detector.get("classes") or {}).values()]
    also = f" + {NATIVE}" if None in labels or (detector.get("params") or {}).get("unknown") else ""
    return _of_score(entry, method, detector) + also


def _of_score(entry: Mapping[str, Any], method: str, detector: Mapping[str, Any]) -> str:
    needs = methods.get(method).needs if method in methods.names() else frozenset()
    again = (detector.get("passes") or {}).get(entry.get("pass")) or {}
    if again.get("kind") == "crops":
        return TEXT if needs & _OF_CLASSES else POST_HOC
    return (
        TEXT
        if detector.get("adapter") == "open_vocabulary" and needs & (_OF_CLASSES | {"score"})
        else POST_HOC
    )
