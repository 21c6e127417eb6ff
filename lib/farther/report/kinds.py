"""Kinds of OOD scores: of a detector that was not made for it, of its own label, of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farther import methods

POST_HOC = "post-hoc"
NATIVE = "native"
TEXT = "text"
IMPORTED = "imported"

#: Inputs of a method that compare an image with texts, where the classes are texts.
_CLASS_INPUTS = frozenset({"logits", "last_layer"})


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
    kind = _kind_of_score(entry, method, detector)
    if _labels_unknown(detector):
        return f"{kind} + {NATIVE}"
    return kind


def _named_methods(entry: Mapping[str, Any]) -> list[str]:
    """The names of methods or entries that an entry is made of."""
    names: list[str] = []
    for parameter in ("of", "first", "then"):
        value = entry.get(parameter) or ()
        names += [value] if isinstance(value, str) else list(value)
    return names


def _labels_unknown(detector: Mapping[str, Any]) -> bool:
    """True if the detector itself labels objects as unknown."""
    classes = detector.get("classes") or {}
    params = detector.get("params") or {}
    return None in classes.values() or bool(params.get("unknown"))


def _kind_of_score(entry: Mapping[str, Any], method: str, detector: Mapping[str, Any]) -> str:
    """`TEXT` for scores from similarities to texts, else `POST_HOC`."""
    needs: frozenset[str] = frozenset()
    for name in (method, *_named_methods(entry)):
        if name in methods.names():
            needs |= methods.get(name).needs
    pass_settings = (detector.get("passes") or {}).get(entry.get("pass")) or {}

    text_inputs: frozenset[str] = frozenset()
    if pass_settings.get("kind") == "crops":
        text_inputs = _CLASS_INPUTS
    elif detector.get("adapter") == "open_vocabulary":
        text_inputs = _CLASS_INPUTS | {"score"}
    return TEXT if needs & text_inputs else POST_HOC
