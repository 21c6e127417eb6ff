"""The section on classes: metrics by OODness, and the graph of classes and ID classes."""

import numpy as np
import polars as pl
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from tests.report.conftest import evaluation_in

from farther.report.pages.classes import _components, class_graph, of_run, pruned


@pytest.fixture(scope="module")
def classes(evaluated):
    return evaluation_in(evaluated).classes


def test_metrics_by_oodness_are_those_of_the_images_of_its_classes(classes):
    # lynx is near: one of its detections is below all ID detections, one above; the kite is far,
    # and below all
    near = classes.by_oodness["msp"]["2"]
    far = classes.by_oodness["msp"]["3"]
    assert (near["images"], near["regions"], near["auroc"], near["fpr95"]) == (4, 2, 0.5, 0.5)
    assert (far["images"], far["regions"], far["auroc"], far["fpr95"]) == (2, 1, 1.0, 0.0)
    assert set(classes.by_oodness) == {"msp", "energy", "knn"}


def test_classes_of_low_oodness_may_count_as_id(classes):
    # 20 ID detections against 0.70, 0.995 and 0.65; then 22, lynx among them, against 0.65
    counted = classes.id_up_to["msp"]
    assert counted["0"]["auroc"] == counted["1"]["auroc"] == pytest.approx(40 / 60)
    assert counted["2"]["auroc"] == 1


def test_images_of_shifted_splits_made_by_rules_count_by_their_class(with_cats):
    # the cat's 0.92 is below 14 of the 20 ID detections (0.900, 0.904, …) and equal to one of them
    classes = evaluation_in(with_cats).classes
    cat = classes.by_oodness["msp"]["0"]
    assert (cat["images"], cat["regions"], cat["auroc"]) == (1, 1, pytest.approx(14.5 / 20))
    # 20 ID detections and the cat, against 0.70, 0.995 and 0.65
    counted = classes.id_up_to["msp"]["0"]
    assert counted["auroc"] == pytest.approx(42 / 63)


def test_outcomes_of_objects_are_counted_by_the_oodness_of_their_class(classes):
    assert classes.outcomes["msp"] == {
        "2": {"objects": 4, "found": 1, "misclassified": 1, "missed": 2},
        "3": {"objects": 2, "found": 1, "misclassified": 0, "missed": 1},
    }


def test_the_class_graph_counts_objects_by_class_and_prediction(classes):
    edges = [(edge.category, edge.id_class, edge.objects) for edge in classes.edges]
    assert edges == [("Lynx", "cat", 2), ("<b>Kite</b>", "cat", 1)]


EDGES = [
    ("fox", "dog", 9),
    ("wolf", "dog", 5),
    ("fox", "cat", 3),
    ("shoe_shop", "Shoe shop", 50),
    ("bed", "sofa", 30),
    ("lamp", "sofa", 1),
]


def edges():
    return pl.DataFrame(EDGES, schema=["category", "id_class", "objects"], orient="row")


def test_a_pruned_graph_has_no_equal_names_no_rare_edges_and_its_components():
    graph = pruned(edges(), min_objects=2, max_edges=10)
    assert list(graph.select("category", "id_class", "component").iter_rows()) == [
        ("bed", "sofa", 0),
        ("fox", "cat", 1),
        ("fox", "dog", 1),
        ("wolf", "dog", 1),
    ]
    assert pruned(edges(), min_objects=2, max_edges=2)["objects"].to_list() == [30, 9]
    assert pruned(edges(), min_objects=100, max_edges=2).is_empty()


def test_components_of_the_graph_are_scipys():
    random = np.random.default_rng(0)
    for count in (1, 3, 10, 30):
        left = random.integers(0, 12, count)
        right = random.integers(0, 12, count)
        graph = pl.DataFrame(
            {"category": [f"{node:02}" for node in left], "id_class": [f"{node}" for node in right]}
        )
        nodes = [*(f"other {node:02}" for node in left), *(f"{node}" for node in right)]
        _, number = np.unique(nodes, return_inverse=True)
        size = number.max() + 1
        adjacency = coo_array((np.ones(count), (number[:count], number[count:])), (size, size))
        _, expected = connected_components(adjacency, directed=False)
        component = _components(graph).to_numpy()
        pairs = set(zip(component.tolist(), expected[number[:count]].tolist(), strict=True))
        assert len(pairs) == len(set(component.tolist()))  # one to one
        assert len(pairs) == len({other for _, other in pairs})
        assert sorted(set(component.tolist())) == list(range(len(pairs)))


def test_each_edge_of_the_graph_ends_at_the_places_of_its_classes():
    chart = class_graph("net", pruned(edges(), min_objects=2, max_edges=10))
    _, categories, _, id_classes, _ = chart.spec["layer"]
    places = {}
    for layer in (categories, id_classes):
        for node in layer["data"]["values"]:
            places[node["side"], node["name"]] = (node["x"], node["y"])
    assert len(set(places.values())) == len(places) == 6
    for edge in chart.spec["data"]["values"]:
        assert (edge["x"], edge["y"]) == places["category", edge["category"]]
        assert (edge["x2"], edge["y2"]) == places["id_class", edge["id_class"]]
    assert "2 separate groups" in chart.title
    assert "fox as dog 9" in chart.description


def test_classes_are_ranked_by_the_similarity_of_their_predictions(make_run):
    rows = [{"name": f"c{n}", "similarity": 1 - n / 30, "objects": 1} for n in range(25)]
    separation = {"auroc": 1, "fpr95": 0, "detection_error": 0, "detection_error95": 0}
    classes = {
        "by_oodness": {"msp": {"2": {"images": 1, "regions": 1, **separation}}},
        "id_up_to": {"msp": {"0": separation}},
        "outcomes": {},
        "edges": [],
        "similarity": {"category": rows, "id_class": []},
    }
    (group,) = of_run(make_run({}, {"classes": classes}))["charts"]
    names = [row["class"] for row in group.charts[0].spec["data"]["values"]]
    assert names == [f"c{n}" for n in (*range(10), *range(15, 25))]
