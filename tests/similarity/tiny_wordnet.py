"""A tiny WordNet in the true file format (wndb(5WN)): byte offsets, a synset per line."""

from pathlib import Path

LICENCE = [
    "  1 This software and database is a stand-in written by a test.  ",
    "  2 WordNet 3.0 Copyright 2006 by nobody.  ",
]

#: Words of a synset, and its hypernym's first word.
NOUNS = [
    (["entity"], None),
    (["object", "physical_object"], "entity"),
    (["animal", "beast"], "object"),
    (["carnivore"], "animal"),
    (["dog"], "carnivore"),
    (["fox"], "carnivore"),
    (["equine"], "animal"),
    (["horse"], "equine"),
    (["zebra"], "equine"),
    (["artifact"], "object"),
    (["furniture"], "artifact"),
    (["sofa", "couch"], "furniture"),
    (["bed"], "furniture"),
    (["television_receiver", "television_set"], "artifact"),
    (["light"], "artifact"),
    (["frank", "dog"], "artifact"),
]


def write(folder: Path, nouns=NOUNS) -> Path:
    """Writes the `dict` folder; a word that stands in several synsets has its senses in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    head = "".join(line + "\n" for line in LICENCE)
    offsets = _offsets(nouns, len(head.encode()))
    of_word = {words[0]: offset for (words, _), offset in zip(nouns, offsets, strict=True)}
    below = {words[0]: [w[0] for w, above in nouns if above == words[0]] for words, _ in nouns}
    lines = [
        _data_line(words, offset, of_word.get(above), [of_word[child] for child in below[words[0]]])
        for (words, above), offset in zip(nouns, offsets, strict=True)
    ]
    (folder / "data.noun").write_text(head + "".join(lines))
    (folder / "index.noun").write_text(head + "".join(_index_lines(nouns, offsets)))
    for part in ("verb", "adj", "adv"):
        (folder / f"data.{part}").write_text(head)
        (folder / f"index.{part}").write_text(head)
        (folder / f"{part}.exc").write_text("")
    (folder / "noun.exc").write_text("oxen ox\n")
    (folder / "lexnames").write_text(
        "".join(f"{n:02d}\t{name}\t{kind}\n" for n, name, kind in _LEXNAMES)
    )
    return folder


_LEXNAMES = [(0, "adj.all", 3), (1, "adj.pert", 3), (2, "adv.all", 4), (3, "noun.Tops", 1)]


def _data_line(words, offset, above, below) -> str:
    """`offset lex_filenum ss_type w_cnt word lex_id … p_cnt pointer … | gloss`: a line's length knows no offset."""
    pointers = ([f"@ {above:08d} n 0000"] if above is not None else []) + [
        f"~ {child:08d} n 0000" for child in below
    ]
    spelled = " ".join(f"{word} 0" for word in words)
    fields = [f"{offset:08d} 03 n {len(words):02x} {spelled} {len(pointers):03d}", *pointers]
    return " ".join(fields) + f' | what is called {words[0]}; "an example"  \n'


def _offsets(nouns, start) -> list[int]:
    offsets = []
    for words, above in nouns:
        offsets.append(start)
        children = [0] * sum(1 for _, other in nouns if other == words[0])
        start += len(_data_line(words, 0, None if above is None else 0, children).encode())
    return offsets


def _index_lines(nouns, offsets) -> list[str]:
    """`lemma pos synset_cnt p_cnt ptr_symbol … sense_cnt tagsense_cnt synset_offset …`, in alphabetical order."""
    senses: dict[str, list[int]] = {}
    for (words, _), offset in zip(nouns, offsets, strict=True):
        for word in words:
            senses.setdefault(word, []).append(offset)
    return [
        f"{word} n {len(at)} 2 @ ~ {len(at)} 0 {' '.join(f'{o:08d}' for o in at)}  \n"
        for word, at in sorted(senses.items())
    ]
