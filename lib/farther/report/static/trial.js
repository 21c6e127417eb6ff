// The images of a trial: detections are ordered by a score, and the least familiar ones are flagged.
"use strict";

const data = JSON.parse(document.getElementById("trial-data").textContent);
const score = document.getElementById("score");
const share = document.getElementById("share");
const count = document.getElementById("flagged-count");
const list = document.getElementById("images");
const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value);
  }
  if (text !== undefined) {
    element.textContent = text;
  }
  return element;
}

function rectangle(box, kind, title) {
  const [left, top, right, bottom] = box;
  const element = shape("rect", {
    x: left, y: top, width: right - left, height: bottom - top, class: kind,
  });
  element.append(shape("title", {}, title));
  return element;
}

// The score below which the chosen share of all detections lies; of equal scores, all are flagged.
function threshold(values) {
  const flagged = Math.round(values.length * share.value / 100);
  return flagged ? values[flagged - 1] : -Infinity;
}

function words(detection, isFlagged, value) {
  const [, name, confidence] = detection;
  const mark = isFlagged ? "? " : "";
  return `${mark}${name} ${Math.round(100 * confidence)}% (${score.value} ${value.toPrecision(3)})`;
}

function picture(image, which, limit) {
  const item = document.createElement("li");
  const drawing = shape("svg", {
    viewBox: `0 0 ${image.width} ${image.height}`, role: "img",
  });
  drawing.append(shape("image", {
    href: `data:image/jpeg;base64,${image.jpeg}`, width: image.width, height: image.height,
  }));
  for (const [box, category] of image.objects) {
    drawing.append(rectangle(box, "truth", category));
  }
  const texts = [];
  for (const detection of image.detections) {
    const value = detection[3][which];
    const isFlagged = value <= limit;
    const text = words(detection, isFlagged, value);
    drawing.append(rectangle(detection[0], isFlagged ? "flagged" : "known", text));
    texts.push(text);
  }
  const description = texts.join("; ") || "no detection";
  drawing.setAttribute("aria-label", `Image ${image.name}: ${description}.`);
  const caption = document.createElement("p");
  caption.textContent = `${image.name}: ${description}`;
  item.append(drawing, caption);
  return item;
}

// Images with the least familiar detection come first, those without a detection last.
function show() {
  const which = score.selectedIndex;
  const values = data.images.flatMap((image) => image.detections.map((one) => one[3][which]));
  values.sort((first, second) => first - second);
  const limit = threshold(values);
  const flagged = values.filter((value) => value <= limit).length;
  count.textContent = `${share.value}%: ${flagged} of ${values.length} detections`;

  const least = (image) => Math.min(Infinity, ...image.detections.map((one) => one[3][which]));
  const ordered = [...data.images].sort((first, second) => {
    const [a, b] = [least(first), least(second)];
    return a === b ? 0 : a - b;
  });
  list.replaceChildren(...ordered.map((image) => picture(image, which, limit)));
}

score.addEventListener("change", show);
share.addEventListener("input", show);
show();
