"use strict";
// The gallery's data. A page that is opened from disk may not fetch, so the data are scripts, which call
// `gallery.addSplit` and `gallery.addOutcomes`; see `farther/report/gallery/data.py`.
window.gallery = {
  // Outcomes: of unknown objects; detections that are flagged without an object that counts; what images show that nobody
  // annotated; missed objects that a proposal covers; of known objects, which can be missed as well; and proposals that
  // are called unknown in images without unknown objects.
  OUTCOMES: [
    "found", "misclassified", "missed", "false unknown", "not annotated", "missed, but a proposal covers it",
    "correct", "wrong class", "flagged as unknown", "false proposal",
  ],
  SIGNS: ["✓", "≠", "○", "!", "·", "◇", "=", "↔", "?", "◆"],
  // The outcome of an object, by its place in OBJECT_OUTCOMES; null where it is not counted.
  OF_OBJECT: [0, 1, 2, null, 6, 7, 8],
  FOUND: 0,
  MISSED: 2,
  FALSE_UNKNOWN: 3,
  UNLABELLED: 4,
  COVERED: 5,
  FLAGGED: 8,
  FALSE_PROPOSAL: 9,
  // Predicted classes that are none of the detector's: an object that is flagged, and one that is missed.
  AS_UNKNOWN: "(unknown)",
  AS_MISSED: "(missed)",
};
{
  const FALSE_DETECTION = 2; // as REGION_OUTCOMES numbers outcomes of detections
  const WHOLE = 65535;

  // Types of numbers, by the letter that a packed column begins with.
  const TYPES = {
    B: Uint8Array, H: Uint16Array, I: Uint32Array, b: Int8Array, h: Int16Array, i: Int32Array, f: Float32Array, d: Float64Array,
  };

  function unpack(text) {
    const raw = atob(text.slice(1));
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
    return new TYPES[text[0]](bytes.buffer);
  }

  const COLUMNS = {
    images: ["root", "width", "height"],
    objects: ["image", "box", "category", "crowd"],
    detections: ["image", "box", "label", "confidence"],
  };
  const PROPOSALS = ["image", "box", "objectness", "object"];
  const OUTCOMES = ["score", "detection", "object", "decided"];

  function unpackAll(table, names) {
    for (const name of names) table[name] = unpack(table[name]);
    return table;
  }

  // URLs of the images' files; one text for all has an asterisk for each image's id.
  function filesOf({ id, file }) {
    if (typeof file !== "string") return file;
    const quoted = (name) => name.split("/").map(encodeURIComponent).join("/");
    return id.map((name) => file.replaceAll("*", () => quoted(name)));
  }

  // Returns the rows of an image: rows are sorted by image, and the first of each image is stored.
  function byImage(image, count) {
    const start = new Uint32Array(count + 1);
    for (const one of image) start[one + 1] += 1;
    for (let i = 0; i < count; i += 1) start[i + 1] += start[i];
    const next = start.slice();
    const rows = new Uint32Array(image.length);
    image.forEach((one, row) => { rows[next[one]++] = row; });
    return (one) => rows.subarray(start[one], start[one + 1]);
  }

  const data = new Map(); // key of a script's content → the content, numbers unpacked
  const scripts = new Map(); // URL of a script → promise of its content

  Object.assign(gallery, {
    addSplit(run, split, part) {
      for (const [table, names] of Object.entries(COLUMNS)) unpackAll(part[table], names);
      part.images.file = filesOf(part.images);
      part.detections.confidence = Float32Array.from(part.detections.confidence, (one) => one / WHOLE);
      if (part.accepting) {
        part.uncertainty = unpack(part.accepting.uncertainty);
        part.rejected = Array.from(part.uncertainty, (one) => one > part.accepting.threshold);
      }
      for (const one of part.subsets) one.codes = unpack(one.codes);
      part.rowOf = new Map(part.images.id.map((name, row) => [name, row]));
      const count = part.images.id.length;
      for (const one of Object.values(part.proposals)) {
        unpackAll(one, PROPOSALS);
        one.of = byImage(one.image, count);
        one.covering = new Map(Array.from(one.object, (object, row) => [object, row])); // by object
      }
      part.objectsOf = byImage(part.objects.image, count);
      part.detectionsOf = byImage(part.detections.image, count);
      part.split = split;
      data.set(keyOf(run, split), part);
    },
    addOutcomes(run, split, method, outcomes) {
      data.set(keyOf(run, split, method), unpackAll(outcomes, OUTCOMES));
    },
    loadPart,
    eventsOf,
    // Whether a row of the objects stands for what nobody annotated in its image.
    isUnlabelled: ({ objects, categories }, row) =>
      objects.crowd[row] === 1 && categories[objects.category[row]] === "unlabelled",
  });

  // Subsets of an image, and of an object in it unless that is −1: "weather=rainy", "size=small".
  function subsetsOf(part, image, object) {
    const names = [];
    for (const { name, of, values, codes } of part.subsets) {
      const row = of === "image" ? image : object;
      if (row >= 0) names.push(`${name}=${values[codes[row]]}`);
    }
    return names;
  }

  // The outcome of an object by the other detector of a part; null where that has none.
  function outcomeElsewhere(part, image, object) {
    const { other } = part;
    const row = other?.method && other.rowOf.get(part.images.id[image]);
    if (row === undefined || object < 0) return null;
    const place = part.objectsOf(image).indexOf(object);
    return gallery.OF_OBJECT[other.method.object[other.objectsOf(row)[place]]] ?? null;
  }

  const keyOf = (...names) => JSON.stringify(names);

  // The content of a script, once it is loaded.
  function load(file, key) {
    if (!scripts.has(file)) {
      scripts.set(file, new Promise((done, failed) => {
        const script = document.createElement("script");
        script.src = file;
        script.onload = () => (data.has(key) ? done(data.get(key)) : script.onerror());
        script.onerror = () => {
          scripts.delete(file);
          failed(new Error(`${file} is not beside this page, or is damaged: build the report again.`));
        };
        document.head.append(script);
      }));
    }
    return scripts.get(file);
  }

  // A split with the outcomes of a method, if it has any there, and the proposals of a source, if it has these.
  async function loadPart(run, split, method, source) {
    const file = split.methods[method];
    const [part, outcomes] = await Promise.all([
      load(split.file, keyOf(run, split.name)),
      file && load(file, keyOf(run, split.name, method)),
    ]);
    return { ...part, isId: split.is_id, method: outcomes, called: part.proposals[source] };
  }

  // The outcome of each object, false unknowns, false proposals, and the detections in images that nobody annotated (or
  // the image alone), by the chosen method.
  function eventsOf(part) {
    const { objects, detections, method, called, isId } = part;
    if (!method) return [];
    const events = [];
    const add = (image, outcome, object, detection, proposal = -1) => {
      const label = detection < 0 ? null : part.classes[detections.label[detection]];
      const isFlagged = [gallery.FOUND, gallery.FALSE_UNKNOWN, gallery.FLAGGED].includes(outcome);
      const predicted = label === null ? [] : [label];
      if (isFlagged) predicted.push(gallery.AS_UNKNOWN);
      if (object >= 0 && detection < 0) predicted.push(gallery.AS_MISSED);
      events.push({
        part, image, outcome, object, detection, proposal, label, predicted,
        isKnown: isId && object >= 0,
        subsets: subsetsOf(part, image, object),
        elsewhere: outcomeElsewhere(part, image, object),
        category: object < 0 ? null : part.categories[objects.category[object]],
        score: detection < 0 ? NaN : method.score[detection],
        confidence: detection < 0 ? NaN : detections.confidence[detection],
      });
    };
    const flagged = new Set(); // detections that flag a known object
    method.object.forEach((code, row) => {
      const image = objects.image[row];
      const outcome = gallery.OF_OBJECT[code];
      const decided = method.decided[row] < 0 ? -1 : part.detectionsOf(image)[method.decided[row]];
      const proposal = !isId && outcome === gallery.MISSED ? called?.covering.get(row) : undefined;
      if (outcome === gallery.FLAGGED) flagged.add(decided);
      if (proposal !== undefined) add(image, gallery.COVERED, row, -1, proposal);
      else if (outcome !== null) add(image, outcome, row, decided);
      else if (gallery.isUnlabelled(part, row)) {
        const seen = [...part.detectionsOf(image)];
        for (const one of seen.length ? seen : [-1]) add(image, gallery.UNLABELLED, -1, one);
      }
    });
    method.detection.forEach((outcome, row) => {
      if (outcome === FALSE_DETECTION && !flagged.has(row)) add(detections.image[row], gallery.FALSE_UNKNOWN, -1, row);
    });
    if (isId) called?.image.forEach((image, row) => add(image, gallery.FALSE_PROPOSAL, -1, -1, row));
    return events;
  }
}
