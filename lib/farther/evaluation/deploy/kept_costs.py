"""Costs of settings on the ID test split, kept from one run of the stage `choose` to the next.

To measure what a setting costs takes far longer than to choose it: the mAP of its detections is
computed for every replicate. Whatever method is added, these costs of the others stay the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace

from pydantic import Field

from farther.evaluation.deploy.results import DeploySetting, MeasuredCost
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import Stored, read_kept_results, write_results
from farther.incremental.keyed import Keyed, key_of


class SettingCosts(Stored):
    """The costs of one setting of a method.

    Args:
        setting: The setting.
        costs: {axis: value on the ID test split}.
    """

    setting: DeploySetting
    costs: dict[str, MeasuredCost]


class MethodCosts(Stored):
    """The content of `choices/<run>/<method>.json`.

    Args:
        settings: The settings that were chosen, by their thresholds.
    """

    settings: list[SettingCosts] = Field(default_factory=list)


class KeptCosts:
    """The stored costs of the settings of a run; those of other inputs or code are not used.

    Args:
        inputs: The run's inputs.
        methods: The methods that are chosen from.
        code: Hash of the code that measures.
        source: Name of the source of proposals; None for none.

    Raises:
        DataError: a file of an earlier stage cannot be read, or the record is damaged.
    """

    def __init__(
        self, inputs: RunInputs, methods: Collection[str], code: str, source: str | None = None
    ):
        self._items = Keyed(inputs.files.id_costs)
        self._keys = _keys(inputs, methods, code, source)
        self._costs: dict[DeploySetting, dict[str, MeasuredCost]] = {}
        inputs.files.id_costs.mkdir(parents=True, exist_ok=True)
        outdated = self._items.outdated(self._keys)
        for method in methods:
            if _item(method) not in outdated:
                self._read(method)

    def of(self, setting: DeploySetting) -> dict[str, MeasuredCost] | None:
        """The costs of a setting; None where they are not stored."""
        return self._costs.get(setting)

    def write(self, costs: Mapping[DeploySetting, dict[str, MeasuredCost]]) -> None:
        """Stores the costs of the settings that were chosen, and no others."""
        settings_by_method: dict[str, list[DeploySetting]] = defaultdict(list)
        for setting in costs:
            settings_by_method[setting.method].append(setting)

        self._items.keep_only([_item(method) for method in settings_by_method])
        for method, settings in settings_by_method.items():
            is_stored = set(settings) == self._stored_settings(method)
            if not is_stored:
                self._write(method, settings, costs)

    def _stored_settings(self, method: str) -> set[DeploySetting]:
        return {setting for setting in self._costs if setting.method == method}

    def _read(self, method: str) -> None:
        file = self._items.path(_item(method))
        stored = read_kept_results(MethodCosts, file, f"delete {file}")
        for entry in stored.settings:
            self._costs[entry.setting] = entry.costs

    def _write(
        self,
        method: str,
        settings: Iterable[DeploySetting],
        costs: Mapping[DeploySetting, dict[str, MeasuredCost]],
    ) -> None:
        stored = []
        for setting in sorted(settings, key=_thresholds):
            stored.append(SettingCosts(setting=setting, costs=costs[setting]))
        item = _item(method)
        with self._items.make(item, self._keys[item]) as path:
            write_results(path, MethodCosts(settings=stored))


def _item(method: str) -> str:
    return f"{method}.json"


def _thresholds(setting: DeploySetting) -> tuple[float, float, str]:
    return setting.operating, setting.tau, setting.alarms


def _keys(
    inputs: RunInputs, methods: Collection[str], code: str, source: str | None
) -> dict[str, str]:
    """The cache key of the costs of each method: nothing of OOD images, nor the budget."""
    files = inputs.files
    split = inputs.settings.id_split
    settings = asdict(replace(inputs.settings, user_defined={}))
    shared_paths = [
        files.images(split),
        files.objects(split),
        files.regions(split),
        files.threshold,
    ]
    if source is not None:
        shared_paths.append(files.proposals(source, split))
    shared = key_of(shared_paths, {"settings": settings, "code": code, "proposals": source})

    keys = {}
    for method in methods:
        keys[_item(method)] = key_of([files.scores(method, split)], {"shared": shared})
    return keys
