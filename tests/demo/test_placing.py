"""Objects of a scene."""

from dataclasses import replace

from farther_demo.placing import SceneObject


def test_an_object_is_annotated_from_three_tenths_on():
    dog = SceneObject(
        category="dog",
        concept="dog",
        drawings=("1F415",),
        sprites=(0,),
        box=(0, 0, 9, 9),
        area=81,
        visible=0.3,
        truncated=False,
        labelled=True,
    )
    assert dog.annotated
    assert not replace(dog, visible=0.29).annotated
    assert not replace(dog, visible=1.0, labelled=False).annotated
