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


_LEXNAMES = [(0, "adj.all", 3), (1, "adj.pert", 3), (2, "adv.all", 4), (3, "noun.Tops", 1)]


def write(folder: Path, nouns=NOUNS) -> Path:
    """Writes the `dict` folder; a word in several synsets has its senses in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    head = "".join(line + "\n" for line in LICENCE)
    offsets = _offsets(nouns, len(head.encode()))
    offset_by_word = {}
    for (words, _), offset in zip(nouns, offsets, strict=True):
        offset_by_word[words[0]] = offset
    data = head
    for (words, hypernym), offset in zip(nouns, offsets, strict=True):
        children = [offset_by_word[child] for child in _children(nouns, words[0])]
        data += _data_line(words, offset, offset_by_word.get(hypernym), children)
    (folder / "data.noun").write_text(data)
    (folder / "index.noun").write_text(head + "".join(_index_lines(nouns, offsets)))
    for part in ("verb", "adj", "adv"):
        (folder / f"data.{part}").write_text(head)
        (folder / f"index.{part}").write_text(head)
        (folder / f"{part}.exc").write_text("")
    (folder / "noun.exc").write_text("oxen ox\n")
    lexnames = [f"{number:02d}\t{name}\t{kind}\n" for number, name, kind in _LEXNAMES]
    (folder / "lexnames").write_text("".join(lexnames))
    return folder


def _children(nouns, word) -> list[str]:
    """First words of the synsets right below one."""
    return [words[0] for words, hypernym in nouns if hypernym == word]


def _data_line(words, offset, hypernym, children) -> str:
    """One synset: `offset lex_filenum ss_type w_cnt word lex_id … p_cnt pointer … | gloss`.

    The length of a line does not depend on offsets.
    """
    pointers = [f"~ {child:08d} n 0000" for child in children]
    if hypernym is not None:
        pointers.insert(0, f"@ {hypernym:08d} n 0000")
    spelled = " ".join(f"{word} 0" for word in words)
    fields = [f"{offset:08d} 03 n {len(words):02x} {spelled} {len(pointers):03d}", *pointers]
    return " ".join(fields) + f' | what is called {words[0]}; "an example"  \n'


def _offsets(nouns, start) -> list[int]:
    """Byte offset of each synset's line, the first at `start`."""
    offsets = []
    for words, hypernym in nouns:
        offsets.append(start)
        children = [0] * len(_children(nouns, words[0]))
        line = _data_line(words, 0, None if hypernym is None else 0, children)
        start += len(line.encode())
    return offsets


def _index_lines(nouns, offsets) -> list[str]:
    """One line per word, in alphabetical order.

    `lemma pos synset_cnt p_cnt ptr_symbol … sense_cnt tagsense_cnt synset_offset …`.
    """
    senses: dict[str, list[int]] = {}
    for (words, _), offset in zip(nouns, offsets, strict=True):
        for word in words:
            senses.setdefault(word, []).append(offset)
    lines = []
    for word, word_offsets in sorted(senses.items()):
        count = len(word_offsets)
        listed = " ".join(f"{offset:08d}" for offset in word_offsets)
        lines.append(f"{word} n {count} 2 @ ~ {count} 0 {listed}  \n")
    return lines
