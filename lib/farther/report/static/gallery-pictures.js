"use strict";
// Pictures of the gallery: an image with its boxes, and each box and outcome in words.
{
  const { OUTCOMES, SIGNS, OF_OBJECT, MISSED, FALSE_PROPOSAL, isUnlabelled } = gallery;
  const [TRUE, FALSE, IGNORED] = [0, 2, 4]; // as REGION_OUTCOMES numbers outcomes of detections
  const WHOLE = 65535;

  const short = (value) => String(Number(value.toPrecision(4))).replace("-", "−");

  const element = (tag, text, className) => {
    const result = document.createElement(tag);
    if (text !== undefined) result.textContent = text;
    if (className) result.className = className;
    return result;
  };

  const SVG = "http://www.w3.org/2000/svg";
  const shape = (tag, attributes) => {
    const result = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) result.setAttribute(name, value);
    return result;
  };

  function place(box, row, width, height) {
    const [left, top, right, bottom] = box.subarray(4 * row, 4 * row + 4);
    const [x, y] = [(left / WHOLE) * width, (top / WHOLE) * height];
    return { x, y, width: (right / WHOLE) * width - x, height: (bottom / WHOLE) * height - y };
  }

  function truthMark({ objects, categories, method }, row) {
    const text = categories[objects.category[row]] + (objects.crowd[row] ? " (group)" : "");
    const outcome = OF_OBJECT[method.object[row]];
    const name = outcome === null ? "not counted" : `${SIGNS[outcome]} ${OUTCOMES[outcome]}`;
    return { kind: "truth", text, words: `${text}: ${name}` };
  }

  function detectionMark({ detections, classes, method }, row) {
    const outcome = method.detection[row];
    // The score alone tells whether a detection that is not counted would be flagged.
    const isFlagged = outcome === TRUE || outcome === FALSE || (outcome === IGNORED && method.score[row] < method.tau);
    const name = `${classes[detections.label[row]]} ${(100 * detections.confidence[row]).toFixed(0)}%`;
    const decision = isFlagged ? `flagged as unknown${outcome === FALSE ? " (! false unknown)" : ""}` : "taken as known";
    const words = `${name}, score ${short(method.score[row])}: ${decision}`;
    return { kind: isFlagged ? "unknown" : "known", text: isFlagged ? `? ${name}` : name, words };
  }

  function proposalMark({ called }, row) {
    const text = `proposal ${short(called.objectness[row])}`;
    const what = called.object[row] < 0 ? "on no unknown object" : "covers a missed object";
    return { kind: "proposed", text, words: `${text}: ${what}` };
  }

  // Ground truth, detections and proposals; those that the filters ask for last, so that they lie on top.
  function marksOf({ part, image, events: asked }) {
    const size = [part.images.width[image], part.images.height[image]];
    const objects = new Set(asked.map((event) => event.object));
    const detections = new Set(asked.map((event) => event.detection));
    const proposals = new Set(asked.map((event) => event.proposal));
    const marks = [
      ...[...part.objectsOf(image)].filter((row) => !isUnlabelled(part, row)).map((row) => ({
        ...truthMark(part, row), ...place(part.objects.box, row, ...size), isWanted: objects.has(row),
      })),
      ...[...part.detectionsOf(image)].map((row) => ({
        ...detectionMark(part, row), ...place(part.detections.box, row, ...size), isWanted: detections.has(row),
      })),
      ...[...(part.called?.of(image) ?? [])].map((row) => ({
        ...proposalMark(part, row), ...place(part.called.box, row, ...size), isWanted: proposals.has(row),
      })),
    ];
    return marks.sort((a, b) => a.isWanted - b.isWanted);
  }

  function drawMark(mark, width, height, size) {
    const result = shape("g", { class: `mark ${mark.kind}${mark.isWanted ? "" : " other"}` });
    const box = { x: mark.x, y: mark.y, width: mark.width, height: mark.height };
    if (mark.kind === "truth") result.append(shape("rect", { class: "halo", ...box }));
    result.append(shape("rect", { class: "edge", ...box }));
    if (!size) return result;
    // Above the box for a detection, at its lower edge for ground truth, so that the two do not hide each other.
    const plate = { width: size * (0.68 * mark.text.length + 0.6), height: 1.35 * size };
    const x = Math.max(Math.min(mark.x, width - plate.width), 0);
    const wanted = mark.kind === "truth" ? mark.y + mark.height : mark.y - plate.height;
    const y = Math.max(Math.min(wanted, height - plate.height), 0);
    const text = shape("text", { x: x + 0.3 * size, y: y + size, style: `font-size: ${size}px` });
    text.textContent = mark.text;
    result.append(shape("rect", { class: "plate", x, y, ...plate }), text);
    return result;
  }

  function picture(card, isLarge) {
    const { images, roots } = card.part;
    const [width, height] = [images.width[card.image], images.height[card.image]];
    const root = roots[images.root[card.image]];
    const marks = marksOf(card);
    const result = element("span", undefined, "shot");
    if (isLarge) result.style.aspectRatio = `${width} / ${height}`;
    const missing = (text) => result.replaceChildren(element("span", text, "missing"));
    if (root === null) {
      missing("params.yaml does not say where this dataset lies.");
      return { shot: result, marks };
    }
    const img = element("img");
    img.loading = isLarge ? "eager" : "lazy";
    img.decoding = "async";
    img.alt = `Image ${images.id[card.image]}: ${marks.map((mark) => mark.words).join("; ")}`;
    img.onerror = () => missing(`Not on this machine: ${decodeURIComponent(img.getAttribute("src"))}`);
    img.onload = () => {
      const [w, h] = [img.naturalWidth, img.naturalHeight];
      if (w === width && h === height) return;
      result.querySelector("svg").remove();
      const sizes = `this file has ${w} × ${h} pixels, the tables say ${width} × ${height}`;
      result.append(element("span", `Shown without boxes: ${sizes}.`, "missing"));
    };
    img.src = `${root}/${images.file[card.image]}`;
    const overlay = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const size = Math.max(width, height) / (isLarge && innerWidth > 700 ? 45 : 21);
    for (const mark of marks) overlay.append(drawMark(mark, width, height, isLarge || mark.isWanted ? size : 0));
    result.append(img, overlay);
    return { shot: result, marks };
  }

  function words(event) {
    const { elsewhere } = event;
    const other = elsewhere === null ? "" : `; ${event.part.other.title}: ${SIGNS[elsewhere]} ${OUTCOMES[elsewhere]}`;
    return ownWords(event) + other;
  }

  function ownWords(event) {
    const uncovered = event.outcome === MISSED && !event.isKnown && event.part.called ? ", no proposal covers it" : "";
    const name = `${SIGNS[event.outcome]} ${OUTCOMES[event.outcome]}${uncovered}`;
    if (event.outcome === FALSE_PROPOSAL) return `${name}: objectness ${short(event.part.called.objectness[event.proposal])}`;
    if (event.proposal >= 0) return `${name}: ${event.category}, objectness ${short(event.part.called.objectness[event.proposal])}`;
    if (event.detection < 0) return `${name}: ${event.category ?? "no detection"}`;
    const how = `${event.label} ${(100 * event.confidence).toFixed(0)}%, score ${short(event.score)}`;
    return `${name}: ${event.object < 0 ? how : `${event.category}, detected as ${how}`}`;
  }

  // Whether a self-aware detector accepts the image, "" where the run has no image threshold.
  function acceptance({ part, image }) {
    if (!part.rejected) return "";
    const doubt = `${short(part.uncertainty[image])} ${part.rejected[image] ? ">" : "≤"} ${short(part.accepting.threshold)}`;
    return `${part.rejected[image] ? "⊘ rejected" : "accepted"}, uncertainty ${doubt}`;
  }

  Object.assign(gallery, { acceptance, element, picture, short, words });
}
