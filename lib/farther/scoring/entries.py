"""Entries of params.yaml's section `methods`.

    methods:
      gen: {}
      gen_published: {method: gen, protocol: published-code}
      sharpness: {power: 2}
      knn: {search: {ood_split: coco_choose, grids: {knn: {k: [1, 10, 50]}}}}
      odin: {method: temperature_scaling, temperature: 1000, pass: perturbed}
      react: {fit_on: val}
      fused: {of: [sharpness, knn]}
      knn_on_crops: {method: knn, pass: crop}
      cascade: {first: sharpness, then: knn_on_crops, share: 0.2}
      vos: {runs: [voc-vos]}

The name of an entry names its folders and its row in tables. It is also the method's name, unless
`method` gives another one, so that a method can be listed with several sets of parameters. `pass`
names the pass of a run that is scored instead of its detections. `fit_on` names another ID split to
learn from than `fit.split`. `runs` names the runs that it is for. `search` and `oracle` choose the
parameters; all other keys are the method's parameters. `of`, `first` and `then` of methods that are
made of others name entries, with their parameters and `pass`, or methods.

User-defined methods are in the project's folder `extensions/`: see `farther.naming.extensions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pydantic.dataclasses import dataclass

from farther.errors import ParameterError, choose
from farther.methods.base import METHODS, Method
from farther.naming.canonical_names import canonical_method
from farther.naming.registry import STRICT, Parameters, build

#: Values of `fit_on` that say whose regions a method learns from; others name an ID split.
OF_PASS = ("pass", "detections")


@dataclass(config=STRICT, kw_only=True)
class ParameterChoice(Parameters):
    """A choice of parameters: the best by AUROC of ID validation against an OOD split.

    Args:
        ood_split: The OOD split that they are chosen on.
        grids: For each method to try, the values to try of each parameter.
    """

    ood_split: str
    grids: dict[str, dict[str, list[Any]]] = field(default_factory=dict)


@dataclass(config=STRICT, kw_only=True)
class MethodEntry(Parameters):
    """An OOD score: an entry of the section `methods` of params.yaml.

    A method whose inputs a detector does not have is left out for its runs. One method may be
    listed several times, with other parameters each.

    Args:
        name: Its name.
        method: The method: see `farther list methods`.
        params: Its parameters.
        search: Choose the method's parameters on an OOD split that no result is reported on (`use:
            validation`).
        oracle: Choose them on a split that results are reported on; the report says so.
        pass_name: The extra inference whose rows are scored, by its name in `passes` of a run; null
            scores the run's own detections.
        fit_on: The ID split that is learned from, in the place of `fit.split`. With `pass`: `pass`,
            the rows of the extra inference in `fit.split`, or `detections`, the run's own.
        runs: The runs that it is for, such as those of detectors that were trained for the method;
            null for all.
    """

    name: str
    method: str
    params: dict[str, Any]
    search: ParameterChoice | None = None
    oracle: ParameterChoice | None = None
    pass_name: str | None = None
    fit_on: str = "pass"
    runs: list[str] | None = None

    @property
    def fit_split(self) -> str | None:
        """The ID split that it learns from; None for `fit.split`."""
        return None if self.fit_on in OF_PASS else self.fit_on

    @property
    def ood_split(self) -> str | None:
        """The OOD split that parameters are chosen on, or that the method learns from.

        None for none.

        Raises:
            ParameterError: see `create`.
        """
        choice = self.search or self.oracle
        return self.create().wants_split if choice is None else choice.ood_split

    @property
    def passes_beside(self) -> tuple[str, ...]:
        """Names of the passes whose columns the method reads beside those of the rows.

        Raises:
            ParameterError: see `create`.
        """
        if self.search or self.oracle:
            return ()
        return self.create().passes_beside

    @property
    def learns_passes(self) -> bool:
        """Whether the method learns from further passes of the training regions.

        Raises:
            ParameterError: the method is not known.
        """
        return any(METHODS.get(name).learn_pass is not Method.learn_pass for name in self.methods)

    @property
    def methods(self) -> list[str]:
        """The methods that it may come to: those of its grids, where parameters are chosen."""
        choice = self.search or self.oracle
        return sorted(choice.grids) if choice and choice.grids else [self.method]

    @property
    def methods_with_parts(self) -> list[str]:
        """`methods`, and those that they are made of.

        Raises:
            ParameterError: see `create`.
        """
        if self.search or self.oracle:
            return self.methods
        return [*self.methods, *sorted(set(self.create().parts.values()))]

    def create(self) -> Method:
        """The method with its parameters, before anything is chosen.

        Raises:
            ParameterError: a parameter is unknown, or a value does not fit.
        """
        return METHODS.create(self.method, **self.params)


def read_entries(section: Mapping[str, Mapping[str, Any] | None]) -> list[MethodEntry]:
    """The entries of section `methods`, checked; see `read_entry`."""
    return [read_entry(name, values or {}, section) for name, values in section.items()]


def read_entry(
    name: str,
    values: Mapping[str, Any],
    section: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> MethodEntry:
    """An entry, checked.

    Args:
        name, values: The entry's name, and what it says.
        section: All entries: those that this one is made of are looked up there.

    Raises:
        ParameterError: a method is unknown, both kinds of choice are asked for, parameters are
            given to a choice, an entry that this one is made of is this one, is made of others
            itself or has more than parameters and `pass`, or passes are named twice.
    """
    params = dict(values)
    chosen: dict[str, Any] = {
        key: params.pop(key) for key in ("search", "oracle", "fit_on", "runs") if key in params
    }
    chosen["pass_name"] = params.pop("pass", None)
    method = canonical_method(params.pop("method", name))
    is_choice = "search" in chosen or "oracle" in chosen
    if section is not None and not is_choice:
        params = _with_entries(name, method, params, section)
    fields = {"name": name, "method": method, **chosen, "params": params}
    entry = build(MethodEntry, f"methods.{name}", fields)
    if entry.search and entry.oracle:
        raise ParameterError(f"methods.{name}: 'search' and 'oracle' cannot be combined")
    if "fit_on" in chosen and entry.fit_split is None and entry.pass_name is None:
        raise ParameterError(
            f"methods.{name}: 'fit_on: {entry.fit_on}' goes with 'pass'; or name an ID split"
        )
    if (entry.search or entry.oracle) and entry.params:
        raise ParameterError(
            f"methods.{name}: {sorted(entry.params)}: with a choice, parameters go into its 'grids'"
        )
    for method in entry.methods:
        METHODS.get(method)
    if entry.pass_name is not None and entry.passes_beside:
        raise ParameterError(
            f"methods.{name}: 'pass' stands beside methods that score a pass themselves: leave it "
            "out, or name it in each of them"
        )
    return entry


def _with_entries(
    name: str,
    method: str,
    params: Mapping[str, Any],
    section: Mapping[str, Mapping[str, Any] | None],
) -> dict[str, Any]:
    """The parameters of an entry, with those of the entries that it is made of."""
    with_entries = dict(params)
    for parameter in METHODS.get(method).names_methods:
        value = with_entries.get(parameter)
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list):
            with_entries[parameter] = _looked_up(f"methods.{name}", parameter, name, value, section)
    return with_entries


def _looked_up(
    place: str,
    parameter: str,
    name: str,
    parts: list[Any],
    section: Mapping[str, Mapping[str, Any] | None],
) -> dict[str, Any]:
    """{part: its parameters}, those of the entries of the same names where there are any."""
    params_by_part = {}
    for part in parts:
        if not isinstance(part, str):
            raise ParameterError(
                f"{place}: {parameter!r} names methods or entries, found {part!r}: give parameters "
                f"as in {{{parameter}: {{knn: {{k: 5}}}}}}"
            )
        if part not in section:
            # An entry that is called by another name of its method.
            part = canonical_method(part)
        if part == name:
            raise ParameterError(f"{place}: {parameter!r} names the entry itself")
        if part in params_by_part:
            raise ParameterError(
                f"{place}: {parameter!r} names {part!r} twice: give each its own name and "
                "parameters"
            )
        if part not in section and part not in METHODS.names():
            known = [*section, *METHODS.names()]
            choose(f"method or entry in {place}.{parameter}", part, known)
        params = dict(section.get(part) or {})
        _check_part(place, parameter, part, params)
        params_by_part[part] = params
    return params_by_part


def _check_part(place: str, parameter: str, part: str, params: Mapping[str, Any]) -> None:
    """Refuses an entry that another one cannot be made of.

    Raises:
        ParameterError: it is made of others itself, or has a key beside parameters and `pass`.
    """
    names = f"{place}: {parameter!r} names the entry {part!r}"
    if METHODS.get(params.get("method", part)).names_methods:
        raise ParameterError(f"{names}, which is made of others itself: name those")
    chosen = sorted({"search", "oracle", "fit_on", "runs"} & params.keys())
    if chosen:
        raise ParameterError(
            f"{names}, which has {chosen[0]!r}; only entries with plain parameters and `pass` can "
            "be parts"
        )
