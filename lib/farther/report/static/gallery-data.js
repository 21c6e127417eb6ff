"use strict";
// The gallery's data. A page that is opened from disk may not fetch, so the data are scripts, which call
// `gallery.addSplit` and `gallery.addOutcomes`; see `farther/report/gallery/data.py`.
window.gallery = {
  // Outcomes of an object, numbered as in OBJECT_OUTCOMES, then detections that are flagged without an unknown object,
  // what images show that nobody annotated, and the missed objects that a proposal covers.
  OUTCOMES: ["found", "misclassified", "missed", "false unknown", "not annotated", "missed, but a proposal covers it"],
  SIGNS: ["✓", "≠", "○", "!", "·", "◇"],
  MISSED: 2,
  FALSE_UNKNOWN: 3,
  UNLABELLED: 4,
  COVERED: 5,
  NOT_COUNTED: 3,
};
{
  const FALSE_UNKNOWN = 2; // as REGION_OUTCOMES numbers outcomes of detections

  function unpack(text, Type) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
    return new Type(bytes.buffer);
  }

  const COLUMNS = {
    images: { root: Uint16Array, width: Uint32Array, height: Uint32Array },
    objects: { image: Uint32Array, box: Uint16Array, category: Uint16Array, crowd: Uint8Array },
    detections: { image: Uint32Array, box: Uint16Array, label: Uint16Array, confidence: Float32Array },
  };
  const PROPOSALS = { image: Uint32Array, box: Uint16Array, objectness: Float32Array, object: Int32Array };
  const OUTCOMES = { score: Float32Array, detection: Uint8Array, object: Uint8Array, decided: Int32Array };

  function unpackAll(table, types) {
    for (const [name, Type] of Object.entries(types)) table[name] = unpack(table[name], Type);
    return table;
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
      for (const [table, types] of Object.entries(COLUMNS)) unpackAll(part[table], types);
      if (part.accepting) {
        part.uncertainty = unpack(part.accepting.uncertainty, Float64Array);
        part.rejected = Array.from(part.uncertainty, (one) => one > part.accepting.threshold);
      }
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
    return { ...part, method: outcomes, called: part.proposals[source] };
  }

  // The outcome of each unknown object, false unknowns, and the detections in images that nobody annotated (or the image
  // alone), by the chosen method.
  function eventsOf(part) {
    const { objects, detections, method, called } = part;
    if (!method) return [];
    const events = [];
    const add = (image, outcome, object, detection, proposal = -1) => events.push({
      part, image, outcome, object, detection, proposal,
      category: object < 0 ? null : part.categories[objects.category[object]],
      label: detection < 0 ? null : part.classes[detections.label[detection]],
      score: detection < 0 ? NaN : method.score[detection],
      confidence: detection < 0 ? NaN : detections.confidence[detection],
    });
    method.object.forEach((outcome, row) => {
      const proposal = outcome === gallery.MISSED ? called?.covering.get(row) : undefined;
      if (proposal !== undefined) add(objects.image[row], gallery.COVERED, row, -1, proposal);
      else if (outcome !== gallery.NOT_COUNTED) add(objects.image[row], outcome, row, method.decided[row]);
      else if (gallery.isUnlabelled(part, row)) {
        const image = objects.image[row];
        const seen = [...part.detectionsOf(image)];
        for (const one of seen.length ? seen : [-1]) add(image, gallery.UNLABELLED, -1, one);
      }
    });
    method.detection.forEach((outcome, row) => {
      if (outcome === FALSE_UNKNOWN) add(detections.image[row], gallery.FALSE_UNKNOWN, -1, row);
    });
    return events;
  }
}
