"""The class mappings: their form, and what those that come with farther say."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from farther.curation import Categories, Rules
from farther.errors import DataError, ParameterError

BENCHMARKS = Path(__file__).parents[2] / "data" / "benchmarks"
VOC_CLASSES = (
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike "
    "person pottedplant sheep sofa train tvmonitor"
)


def deciding(
    file: str, vocabulary: str, *names: str, protocol: str = "paper", **parents: tuple[str, ...]
) -> list[str]:
    decided = Rules(BENCHMARKS / file, protocol).by_category(vocabulary, Categories(names, parents))
    return [str(decided[name]) if name in decided else "none" for name in names]


def test_the_voc_rules_know_the_twenty_classes_by_every_dataset_s_name():
    rules = Rules(BENCHMARKS / "voc.yaml")
    assert list(rules.id_classes) == VOC_CLASSES.split()
    assert rules.vocabularies == ("voc", "coco", "openimages", "objects365", "bdd")
    for vocabulary in ("voc", "coco", "openimages", "objects365"):
        assert {
            r.id_class for r in rules.for_vocabulary(vocabulary) if r.kind == "ID class"
        } == set(VOC_CLASSES.split())


@pytest.mark.parametrize(
    ("vocabulary", "overlap", "near"), [("coco", 7, 13), ("openimages", 19, 15)]
)
def test_tables_5_and_6_of_fmiyc_are_all_there(vocabulary, overlap, near):
    kinds = [rule.kind for rule in Rules(BENCHMARKS / "voc.yaml").for_vocabulary(vocabulary)]
    assert (kinds.count("overlap"), kinds.count("near")) == (overlap, near)


def test_one_class_has_one_fate_under_all_its_names():
    assert deciding("voc.yaml", "coco", "tv", "laptop") == [
        "ID class: tv → tvmonitor",
        "near: laptop → tvmonitor",
    ]
    assert deciding("voc.yaml", "openimages", "Television") == ["ID class: Television → tvmonitor"]
    assert deciding("voc.yaml", "openimages", "human FACE") == ["overlap: Human face → person"]


def test_a_spoon_on_both_lists_is_an_overlap():
    assert deciding("voc.yaml", "coco", "spoon") == ["overlap: spoon → diningtable"]


def test_a_knife_is_near_even_though_tableware_lies_above_it():
    shown = deciding(
        "voc.yaml", "openimages", "Knife", "Mug", Knife=("Tableware",), Mug=("Tableware",)
    )
    assert shown == ["near: Knife → diningtable", "overlap: Tableware → diningtable"]


def test_the_published_code_s_lists_are_longer():
    names = ("knife", "broccoli", "spoon")
    assert deciding("voc.yaml", "coco", *names)[:2] == ["none", "none"]
    published = deciding("voc.yaml", "coco", *names, protocol="published-code")
    assert published == [
        "overlap: knife → diningtable",
        "near: broccoli → diningtable",
        "overlap: spoon → diningtable",
    ]


def test_for_the_elephant_only_the_id_classes_decide():
    rules = Rules(BENCHMARKS / "voc.yaml", "elephant").for_vocabulary("coco")
    assert {rule.kind for rule in rules} == {"ID class"}
    assert len(rules) == 20


def test_groups_of_similar_classes_are_those_of_hoiem_et_al():
    similar = Rules(BENCHMARKS / "voc.yaml").similar
    assert [len(group) for group in similar] == [7, 7, 3, 2]
    # Boxes and plants and screens are like nothing else; what flies is like vehicles and like
    # animals.
    assert sorted(name for group in similar for name in group if name in ("aeroplane", "bird")) == [
        *["aeroplane"] * 2,
        *["bird"] * 2,
    ]
    assert not {"bottle", "pottedplant", "tvmonitor"} & {
        name for group in similar for name in group
    }


def test_for_bdd_people_and_their_parts_overlap_and_nothing_is_near():
    rules = Rules(BENCHMARKS / "bdd.yaml")
    assert not [r for v in rules.vocabularies for r in rules.for_vocabulary(v) if r.kind == "near"]
    assert deciding("bdd.yaml", "coco", "person", "horse") == [
        "ID class: person → pedestrian",
        "none",
    ]
    shown = deciding(
        "bdd.yaml",
        "openimages",
        "Boy",
        "Foot",
        **{"Foot": ("Human body", "Person"), "Human body": ("Person",)},
    )
    assert shown == ["ID class: Boy → pedestrian", "overlap: Human body → pedestrian"]


def protocol(**lists: str) -> str:
    return f"{{id_classes: {{cat: {{}}}}, protocols: {{paper: {ONE_PROTOCOL | lists}}}}}".replace(
        "'", ""
    )


ONE_PROTOCOL = {"overlap": "{}", "near": "{}"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id_classes: [", "not YAML"),
        ("- a", "expected a mapping"),
        ("{id_classes: {cat: {}}, protocols: {}, overlaps: {}}", "unknown parameter 'overlaps'"),
        ("{id_classes: {cat: {coco: cat}}, protocols: {}}", "parameter 'id_classes.cat.coco'"),
        ("{id_classes: [cat], protocols: {}}", "parameter 'names'"),
        (
            "{id_classes: [cat], names: none.yaml, vocabulary: voc, protocols: {}}",
            r"none\.yaml: the file does not exist",
        ),
        (
            "{id_classes: {cat: {}}, protocols: {}, similar: [[cat, dog]]}",
            "field 'similar': 'dog' is not among",
        ),
        (protocol(fra="{}"), "unknown parameter 'protocols.paper.fra'. Known: overlap, near, far"),
        (
            protocol(overlap="{coco: {dog: [fox]}}"),
            "field 'overlap.coco': 'dog' is not among id_classes",
        ),
        (protocol(extends="old"), "field 'extends': 'old' is not a protocol"),
        (protocol(extends="paper"), "'paper' extends itself"),
        (
            protocol(classes_by="{near_above: 0.5, similar: path}"),
            "unknown parameter 'protocols.paper.classes_by.similar'. Known: near_above",
        ),
        (
            protocol(classes_by="{near_above: 0.5, overlap_above: 0.4}"),
            "'protocols.paper.classes_by': overlap_above = 0.4 is below near_above = 0.5",
        ),
    ],
)
def test_a_wrong_rules_file_is_refused_with_its_name_and_field(tmp_path, text, message):
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    with pytest.raises(DataError, match=message) as error:
        Rules(file)
    assert str(error.value).startswith(str(tmp_path))


def test_an_absent_rules_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"none\.yaml: the file does not exist"):
        Rules(tmp_path / "none.yaml")


def test_unknown_protocols_and_vocabularies_are_refused_with_the_known_ones():
    with pytest.raises(ParameterError, match=r"no protocol 'code'\. Known: paper, published-code"):
        Rules(BENCHMARKS / "voc.yaml", "code")
    with pytest.raises(
        ParameterError, match=r"no rules for the vocabulary 'lvis'\. Known: voc, coco, openimages"
    ):
        Rules(BENCHMARKS / "voc.yaml").for_vocabulary("lvis")


UNKNOWN_VOCABULARY = "id_classes: {cat: {}}\nprotocols: {paper: {near: {}}}\n"


@pytest.mark.parametrize(
    ("advice", "before", "after", "count"),
    [
        ("`cat: {lvis: [NAME]}`", "cat: {}", "cat: {lvis: [kitten]}", 1),
        ("`lvis: {}` below `near`", "near: {}", "near: {lvis: {}}", 0),
    ],
)
def test_what_the_message_about_an_unknown_vocabulary_says_can_be_written(
    tmp_path, advice, before, after, count
):
    file = tmp_path / "rules.yaml"
    file.write_text(UNKNOWN_VOCABULARY)
    with pytest.raises(ParameterError, match=r"Known: none\. ") as error:
        Rules(file).for_vocabulary("lvis")
    assert advice in str(error.value)
    file.write_text(UNKNOWN_VOCABULARY.replace(before, after))
    assert len(Rules(file).for_vocabulary("lvis")) == count


KINDS = """
entity:
  animal: {carnivore: {canine: [dog, wolf, fox], feline: [cat]}, equine: [horse]}
  artifact: {furniture: [sofa, bench], vehicle: [car, van]}
"""
SIMILAR = """
id_classes: {dog: {}, sofa: {mine: [couch]}}
protocols:
  strict:
    overlap: {zoo: {dog: [cat]}}
    near: {zoo: {various: [van]}}
    far: {zoo: [Bench]}
    classes_by: {similarity: path, near_above: 0.3, hierarchy: kinds.yaml}
  loose:
    extends: strict
    classes_by: {similarity: path, near_above: 0.15, overlap_above: 0.3, hierarchy: kinds.yaml}
"""


@pytest.fixture
def similar(tmp_path):
    """Rules by similarity in a small hierarchy, by protocol."""
    (tmp_path / "kinds.yaml").write_text(KINDS)
    (tmp_path / "rules.yaml").write_text(SIMILAR)
    return lambda protocol: Rules(tmp_path / "rules.yaml", protocol)


ZOO = Categories(("Dog", "wolf", "cat", "horse", "bench", "van", "unheard"))


def test_classes_that_no_list_names_are_sorted_by_similarity(similar):
    # wolf is two edges from dog: 1/3; horse five: 1/6; lists go first, and Dog is called as the ID
    # class
    assert [str(rule) for rule in similar("strict").by_category("zoo", ZOO).values()] == [
        "ID class: dog → dog",
        "near: wolf → dog (similarity 0.33)",
        "overlap: cat → dog",
        "near: van → various",
    ]
    loose = similar("loose").by_category("zoo", ZOO)
    assert (loose["wolf"].kind, loose["horse"].kind) == ("overlap", "near")
    assert "bench" not in loose and "unheard" not in loose


def test_oodness_is_0_for_id_classes_and_3_for_far_ones(similar):
    found = similar("strict").sorted_classes("zoo", "zoo", ZOO)
    assert found.oodness.tolist() == [0, 2, 1, 3, 3, 2, 3]
    assert found.nearest.tolist() == ["dog", "dog", "dog", "dog", "sofa", "sofa", ""]
    assert found.similarity.round(3).tolist() == [1, 0.333, 0.2, 0.167, 0.333, 0.2, -1]
    assert found.id_class.tolist()[5:] == ["various", ""]


def test_names_of_id_classes_in_a_vocabulary_go_before_similarity(similar):
    found = similar("strict").by_category("mine", Categories(("couch", "dog")))
    assert {name: rule.kind for name, rule in found.items()} == {
        "couch": "ID class",
        "dog": "overlap",
    }


def test_a_higher_least_similarity_leaves_fewer_classes_near(tmp_path):
    (tmp_path / "kinds.yaml").write_text(KINDS)
    text = (
        "{id_classes: {dog: {}}, "
        "protocols: {paper: {classes_by: {near_above: %s, hierarchy: kinds.yaml}}}}"
    )
    near = []
    for least in (0.2, 0.5, 0.6, 0.9):
        (tmp_path / "rules.yaml").write_text(text % least)
        found = Rules(tmp_path / "rules.yaml").by_category(
            "zoo", Categories(("wolf", "cat", "horse", "car"))
        )
        near.append([name for name, rule in found.items() if rule.kind == "near"])
    assert near[0] == ["wolf", "cat", "horse"] and near[-1] == []
    assert all(set(more) >= set(fewer) for more, fewer in pairwise(near))


def test_a_misspelt_or_otherwise_named_id_class_is_reported_unless_it_is_listed_as_far(tmp_path):
    text = "id_classes: {person: {photos: [Person]}, motorbike: {photos: [Motor bike]}}\n"
    (tmp_path / "rules.yaml").write_text(
        f"{text}protocols: {{paper: {{far: {{photos: [Perso]}}}}}}\n"
    )
    rules = Rules(tmp_path / "rules.yaml")
    found = rules.doubtful(
        "photos", Categories(("Person", "persn", "Perso", "motorbikes", "kite", "forklift"))
    )
    assert [
        re.search(r"photos: '(\w+)' has no rule .* the ID class '(\w+)'", text).groups()
        for text in found
    ] == [
        ("persn", "person"),
        ("motorbikes", "motorbike"),
    ]
    called = Categories(("motorbike", "motorbikes"))
    assert len(rules.doubtful("photos", called)) == 2
    (kept,) = rules.doubtful("photos", called, keeps_known=True)
    assert "'motorbikes' has no rule" in kept


def test_a_category_resembles_an_id_class_by_all_its_names_but_by_no_other_category(tmp_path):
    (tmp_path / "rules.yaml").write_text(
        "id_classes: {table: {photos: [Dining table], mine: [Esstisch]}}\n"
        "protocols: {paper: {near: {photos: {table: [Hassock]}}, "
        "overlap: {photos: {table: [Crockery]}}}}\n"
    )
    names = ("dining-tables", "Esstisch", "TABLES", "Hassocks", "Crokery", "Hassock")
    found = Rules(tmp_path / "rules.yaml").doubtful("photos", Categories(names))
    assert [
        re.search(r"photos: '([\w-]+)' has no rule .* 'table'", text)[1] for text in found
    ] == list(names[:3])


def test_categories_that_a_vocabulary_does_not_have_are_told_from_those_that_it_has():
    rules = Rules(BENCHMARKS / "voc.yaml")
    names = Categories(("person", "zebra", "forklift pallet", "spoon", "laptop"))
    assert rules.unnamed("coco", names) == ["forklift pallet"]


def test_all_classes_that_the_file_of_names_lacks_are_named_at_once(tmp_path):
    (tmp_path / "names.yaml").write_text("dog: {coco: [dog]}\n")
    (tmp_path / "rules.yaml").write_text(
        "id_classes: [dog, fire hydrant, kite]\n"
        "vocabulary: coco\nnames: names.yaml\nprotocols: {paper: {}}\n"
    )
    message = (
        r"'coco' has no class called 'fire hydrant', 'kite'; "
        r"add fire hydrant: {coco: \[fire hydrant\]}; kite: "
    )
    with pytest.raises(DataError, match=message):
        Rules(tmp_path / "rules.yaml")
