"""On a tiny WordNet: 16 nouns, a hierarchy of 4 edges: entity, object, animal, carnivore, dog."""

import math
from pathlib import Path

import pytest

from farther.datasets.hierarchy import HierarchyFile, read_synsets
from farther.datasets.wordnet import WordNet, WordNetParams, distance_of, open_hierarchy
from farther.errors import DataError, ParameterError
from farther.naming.registry import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_wordnet):
    return write_wordnet(tmp_path_factory.mktemp("wordnet") / "dict")


@pytest.fixture(scope="module")
def wordnet(folder):
    return WordNet(
        folder, {"tvmonitor": ["television set"], "hot dog": ["dog.n.02"], "pet": ["dog", "horse"]}
    )


def test_similarities_are_those_worked_out_by_hand(wordnet):
    # dog and fox are two edges apart, by carnivore, the fourth node from the root; the longest path
    # has four edges
    found = wordnet.similarity("dog", "fox")
    assert found.path == pytest.approx(1 / 3)
    assert found.wu_palmer == pytest.approx(2 * 4 / (5 + 5))
    assert found.leacock_chodorow == pytest.approx(-math.log(3 / 8) / math.log(8))
    assert found.mean == pytest.approx((found.path + found.wu_palmer + found.leacock_chodorow) / 3)


def test_similarities_of_all_pairs_are_those_of_nltk(folder, wordnet):
    reader = wordnet._reader
    synsets = [
        reader.synset(f"{name}.n.01")
        for name in ("entity", "animal", "dog", "fox", "zebra", "couch", "light")
    ]
    synsets = [*synsets, reader.synset("frank.n.01")]
    raw = WordNet(folder, scale="raw")
    for one in synsets:
        for other in synsets:
            found = raw._node_similarity(one.name(), other.name(), "")
            assert found.path == pytest.approx(one.path_similarity(other))
            assert found.wu_palmer == pytest.approx(one.wup_similarity(other))
            assert found.leacock_chodorow == pytest.approx(one.lch_similarity(other))


def test_folders_of_imagenet_are_synsets_by_their_place(wordnet):
    place = wordnet._reader.synset("dog.n.01").offset()
    assert wordnet.synsets(f"n{place:08d}") == ("dog.n.01",)
    assert wordnet.synsets("n99999999") == ()


def test_of_equally_similar_names_one_that_is_found_whole_is_the_nearest(wordnet):
    assert wordnet.nearest("horse", ["sea horse", "horse", "horse/wild"]).other == "horse"
    assert wordnet.synsets("dog/outdoor") == ("dog.n.01",)


def test_lexnames_which_debian_leaves_out_are_not_needed(wordnet, tmp_path, write_wordnet):
    folder = write_wordnet(tmp_path / "dict")
    (folder / "lexnames").unlink()
    assert WordNet(folder).similarity("dog", "fox") == wordnet.similarity("dog", "fox")


TREE = """
entity:
  object:
    animal: {carnivore: [dog, fox], equine: [horse, zebra]}
    artifact: {furniture: [sofa, bed], television_receiver: , light: , frank: }
"""


def test_a_hierarchy_in_yaml_has_the_similarities_of_a_wordnet_of_the_same_shape(wordnet, tmp_path):
    (tmp_path / "kinds.yaml").write_text(TREE)
    kinds = open_hierarchy(tmp_path / "kinds.yaml")
    assert isinstance(kinds, HierarchyFile)
    for one, other in (
        ("dog", "fox"),
        ("Dog", "zebra"),
        ("bed", "light"),
        ("horse", "animal"),
        ("entity", "sofa"),
    ):
        assert kinds.similarity(one, other) == wordnet.similarity(one, other)
    assert kinds.synsets("fox and Zebra") == ("fox", "zebra")
    assert kinds.nearest("fox", ["sofa", "horse", "dog"], "path").other == "dog"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[dog, fox]", "expected one kind that contains all others"),
        ("{a: [b], c: [d]}", "expected one kind that contains all others"),
        ("{a: {b: [c], d: [C]}}", "field 'd': 'C' occurs twice"),
        ("{a: {b: 3}}", "field 'b': expected names of kinds, found 3"),
    ],
)
def test_a_hierarchy_of_another_form_is_refused(tmp_path, text, message):
    (tmp_path / "kinds.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        HierarchyFile(tmp_path / "kinds.yaml")


def test_leacock_chodorow_is_as_published_when_it_is_raw(folder):
    assert WordNet(folder, scale="raw").similarity("dog", "fox").leacock_chodorow == pytest.approx(
        -math.log(3 / 8)
    )


def test_a_name_is_fully_similar_to_itself_and_to_its_synonyms(wordnet):
    for other in ("sofa", "couch", "Couch"):
        found = wordnet.similarity("sofa", other)
        assert (found.path, found.wu_palmer, found.leacock_chodorow) == pytest.approx((1, 1, 1))


def test_similarity_does_not_depend_on_the_order_of_names(wordnet):
    for one, other in (("dog", "zebra"), ("bed", "tvmonitor"), ("horse", "sofa")):
        assert wordnet.similarity(one, other).mean == pytest.approx(
            wordnet.similarity(other, one).mean
        )


def test_a_name_is_looked_up_whole_before_its_words(wordnet):
    assert wordnet.synsets("Television set") == ("television_receiver.n.01",)
    assert wordnet.synsets("Traffic light") == ("light.n.01",)
    assert wordnet.synsets("nothing of this") == ()


def test_the_mapping_decides_over_the_name(wordnet):
    assert wordnet.synsets("TVmonitor") == ("television_receiver.n.01",)
    assert wordnet.synsets("hot dog") == ("frank.n.01",)
    assert wordnet.synsets("dog") == ("dog.n.01",)


def test_of_several_synsets_the_most_similar_pair_decides(wordnet):
    assert wordnet.similarity("pet", "zebra") == wordnet.similarity("horse", "zebra")


def test_the_nearest_class_is_named(wordnet):
    found = wordnet.nearest("fox", ["sofa", "horse", "dog", "unheard of"])
    assert found.other == "dog"
    assert wordnet.nearest("unheard of", ["dog"]) is None


def test_a_higher_published_threshold_makes_more_classes_id(wordnet, folder):
    classes = ["dog", "horse", "sofa"]
    names = ["dog", "fox", "zebra", "bed", "couch", "light", "entity"]
    counts = {}
    for threshold in ("T40", "T45", "T50"):
        params = WordNetParams(folder=folder, threshold=threshold)
        assigned = [distance_of(wordnet.nearest(name, classes), params) for name in names]
        counts[threshold] = assigned.count("ID")
        assert set(assigned) <= {"ID", "near", "far"}
    # fox, zebra and bed are at 1 - 0.535 = 0.465 from their neighbours
    assert counts == {"T40": 2, "T45": 2, "T50": 5}


def test_what_is_not_id_is_near_up_to_its_own_threshold(wordnet, folder):
    params = WordNetParams(folder=folder, threshold=0.4, near=0.5)
    assert distance_of(wordnet.similarity("dog", "fox"), params) == "near"
    assert distance_of(wordnet.similarity("dog", "horse"), params) == "far"


def test_a_near_threshold_below_that_of_id_is_refused(folder):
    with pytest.raises(ParameterError, match="below the threshold of ID"):
        build(
            WordNetParams, "stratify.wordnet", {"folder": folder, "threshold": "T50", "near": 0.45}
        )


def test_a_folder_without_wordnet_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"index\.noun is missing: unpack WordNet"):
        WordNet(tmp_path)


def test_a_damaged_file_is_named_as_damage(tmp_path, write_wordnet):
    folder = write_wordnet(tmp_path / "dict")
    (folder / "index.noun").write_text("dog n many\n")
    with pytest.raises(DataError, match=r"dict: WordNet's files are damaged"):
        WordNet(folder)


def test_a_damaged_line_is_named_as_damage_where_it_is_read(tmp_path, write_wordnet):
    folder = write_wordnet(tmp_path / "dict")
    found = WordNet(folder)
    data = (folder / "data.noun").read_bytes()
    (folder / "data.noun").write_bytes(data.replace(b" n ", b" \xff ", 1))
    for read in (found.nouns, lambda: found.depth):
        with pytest.raises(DataError, match=r"dict: WordNet's files are damaged"):
            read()


def test_a_file_that_is_too_large_for_wordnet_is_not_read(tmp_path, write_wordnet, monkeypatch):
    folder = write_wordnet(tmp_path / "dict")
    monkeypatch.setattr("farther.datasets.wordnet.LARGEST", 2**20)
    (folder / "a.link").symlink_to("nowhere")
    WordNet(folder)
    with (folder / "index.verb").open("ab") as file:
        file.truncate(2**40)
    with pytest.raises(
        DataError, match=r"index\.verb: 1,099,511,627,776 bytes; a file of WordNet has fewer than"
    ):
        WordNet(folder)


def test_a_mapping_to_what_is_not_there_is_an_error(folder):
    with pytest.raises(DataError, match=r"'rider' names 'rider\.n\.03'"):
        WordNet(folder, {"rider": ["rider.n.03"]}).synsets("rider")


def test_the_mapping_file_takes_one_synset_or_several(tmp_path):
    file = tmp_path / "synsets.yaml"
    file.write_text("tvmonitor: television set\npet: [dog, cat.n.01]\n")
    assert read_synsets(file) == {"tvmonitor": ("television set",), "pet": ("dog", "cat.n.01")}
    file.write_text("pet: {dog: 1}\n")
    with pytest.raises(DataError, match=r"field 'pet': expected a synset"):
        read_synsets(file)
    file.write_text("- dog\n")
    with pytest.raises(DataError, match="expected class names"):
        read_synsets(file)


def test_the_shipped_mapping_covers_the_classes_whose_names_wordnet_cannot_know():
    mapping = read_synsets(Path(__file__).parents[2] / "data" / "similarity" / "synsets.yaml")
    assert {"tvmonitor", "pottedplant", "diningtable", "motorbike", "rider"} <= set(mapping)
