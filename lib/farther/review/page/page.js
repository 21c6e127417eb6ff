// One image at a time. A decision counts as saved only when the server has answered that it is on disk.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const KEYS = { k: "keep", r: "remove", n: "near", f: "far", u: "undo", ArrowLeft: "previous", ArrowRight: "next" };
const TIMEOUT = 15000; // milliseconds; sending a saved decision again changes nothing
const OTHER = "another reason (see note)";

let summary = null;
let queue = [];
let place = 0;
let image = null;
let busy = false;

class Refused extends Error {}

async function ask(path, body) {
  const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, { ...(body === undefined ? {} : post), signal: AbortSignal.timeout(TIMEOUT) });
  } catch {
    throw new Refused("The server does not answer. Start it again and open the address that it prints. All decisions reported as saved are kept.");
  }
  const content = await answer.json();
  if (!answer.ok) throw new Refused(content.error);
  return content;
}

function report(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

// Runs one action. Keys pressed meanwhile would apply to an image that is not shown yet, so they are ignored.
async function alone(action) {
  if (busy) return;
  busy = true;
  try {
    await action();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    report(error.message, true);
    if ($("main").hidden) nothing(error.message);
  } finally {
    busy = false;
  }
}

function nothing(text) {
  $("nothing").textContent = text;
  $("nothing").hidden = false;
  $("main").hidden = true;
}

const worded = (one) => [one.decision, one.id_class].filter(Boolean).join(" → ") + (one.note ? ` (${one.note})` : "");
const count = (number) => number.toLocaleString("en");

// --- the queue

async function load() {
  const form = new FormData($("filters"));
  queue = await ask("api/queue?" + new URLSearchParams([...form].filter(([, value]) => value)));
  place = 0;
  if (queue.length) return show();
  image = null;
  nothing("No image passes these filters.");
  position();
}

function position() {
  const outside = image && queue[place] !== image.row ? ", not including this one" : "";
  $("chosen").textContent = queue.length ? `– ${count(place + 1)} of ${count(queue.length)}${outside}` : "– none";
}

async function show(row = queue[place]) {
  render(await ask(`api/image/${row}`));
}

async function step(by) {
  const next = place + by;
  if (next < 0) return report("This is the first image.");
  if (next >= queue.length) return report($("status").textContent + " That was the last image of the queue.");
  place = next;
  await show();
}

async function browse(by) {
  report("");
  await step(by);
}

// --- what is shown

function render(found) {
  image = found;
  $("nothing").hidden = true;
  $("main").hidden = false;
  $("name").textContent = `${found.dataset} ${found.subset} ${found.image_id}`;
  const fate = document.createElement("strong");
  fate.textContent = found.fate;
  $("fate").replaceChildren(fate, found.split ? ` – in split ${found.split}` : " – in no split");
  const suspect = found.detections.find((one) => one.suspect);
  $("alert").textContent = suspect ? `Unlabelled ${suspect.name}? Detected by ${summary.run} with score ${hundredths(suspect.score)}` : "";
  facts(found);
  for (const button of document.querySelectorAll("[data-do]")) {
    const name = button.dataset.do;
    if (["keep", "remove", "near", "far"].includes(name)) {
      button.hidden = !found.choices.includes(name);
      button.setAttribute("aria-pressed", String(found.mine?.decision === name));
    }
  }
  $("note").value = "";
  picture(found);
  position();
}

function facts(found) {
  const listed = (names) => names.join(", ") || "nothing";
  const rows = [["By the rules", found.by_rules], ["Labelled", listed(tally(found.labels))]];
  if (found.decided) rows.unshift(["Decided", found.decided]);
  if (summary.run) {
    const seen = found.detections.slice(0, 6).map(percent);
    rows.push([`Detected by ${summary.run}`, listed(seen)]);
  }
  if (found.similarity) {
    const { similarity, id_class, suggested } = found.similarity;
    const like = id_class ? `, most like ${id_class}` : "";
    rows.push(["Similarity to ID", similarity.toFixed(3) + like + (suggested ? `; suggests ${suggested}` : "")]);
  }
  rows.push(["You", found.mine ? worded(found.mine) : "not decided"]);
  if (found.hidden) rows.push(["Others", `${found.hidden} decided; shown after your decision`]);
  for (const one of found.others) rows.push([one.reviewer, worded(one)]);
  if (found.disagree) rows.push(["Agreement", "reviewers disagree"]);
  $("facts").replaceChildren(...rows.flatMap(([what, value]) => [element("dt", what), element("dd", value)]));
}

function tally(labels) {
  const counts = new Map();
  for (const { name } of labels) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].map(([name, number]) => (number > 1 ? `${name} × ${number}` : name));
}

function element(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}

function picture(found) {
  const { width, height } = found;
  const stage = $("stage");
  stage.style.aspectRatio = `${width} / ${height}`;
  const tallest = matchMedia("(max-width: 52rem)").matches ? 52 : 80;
  stage.style.width = `min(100%, calc(${tallest}vh * ${width / height}))`;
  $("missing").hidden = true;
  $("picture").hidden = false;
  $("picture").alt = `Labelled: ${tally(found.labels).join(", ") || "nothing"}.`;
  $("picture").src = `picture/${found.row}`;
  draw();
}

$("picture").addEventListener("error", () => {
  $("picture").hidden = true;
  $("missing").hidden = false;
  $("missing").textContent = `The image cannot be shown: ${image.file} is not on this machine or cannot be read.`;
});

function draw() {
  if (!image) return;
  const boxes = $("boxes");
  boxes.setAttribute("viewBox", `0 0 ${image.width} ${image.height}`);
  const size = (13 * image.width) / Math.max(boxes.clientWidth, 1);
  const marks = [];
  if ($("show-detections").checked) {
    for (const one of image.detections) if (!one.suspect) marks.push(mark(one, "detection", percent(one), size));
  }
  if ($("show-labels").checked) {
    for (const one of image.labels) marks.push(mark(one, one.decides ? "label decides" : "label", one.name, size));
  }
  if ($("show-suspect").checked) {
    for (const one of image.detections) if (one.suspect) marks.push(mark(one, "suspect", `${percent(one)}?`, size));
  }
  boxes.replaceChildren(...marks);
}

const hundredths = (fraction) => `${Math.round(100 * fraction)}%`;
const percent = (one) => `${one.name} ${hundredths(one.score)}`;

function mark({ box: [left, top, right, bottom] }, kind, text, size) {
  const group = shape("g", { class: kind });
  const edges = { x: left, y: top, width: right - left, height: bottom - top };
  group.append(shape("rect", { ...edges, class: "halo" }), shape("rect", { ...edges, class: "edge" }));
  const wide = text.length * size * 0.66 + size * 0.6, high = size * 1.35;
  const x = Math.max(Math.min(left, image.width - wide), 0);
  // Names of labels are at the lower edge, those of detections at the upper, so that they do not hide each other.
  const y = Math.max(Math.min(kind.startsWith("label") ? bottom : top - high, image.height - high), 0);
  const words = shape("text", { x: x + size * 0.3, y: y + size, "font-size": size });
  words.textContent = text;
  group.append(shape("rect", { x, y, width: wide, height: high, class: "plate" }), words);
  return group;
}

function shape(kind, attributes) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function people(found) {
  summary = { ...summary, ...found };
  $("benchmark").textContent = summary.benchmark;
  document.title = `Review ${summary.benchmark}`;
  $("reviewer").textContent = summary.reviewer;
  $("done").max = summary.images;
  $("done").value = summary.mine;
  $("counted").textContent = `${count(summary.mine)} of ${count(summary.images)} images`;
  const undo = document.querySelector("[data-do=undo]");
  undo.disabled = !summary.undo;
  undo.title = summary.undo ? `Undoes: ${summary.undo.text}` : "Nothing to undo";
  $("disagreements").textContent =
    `Reviewers disagree on ${count(summary.disagreements)} of ${count(summary.anyone)} decided images; ` +
    `${count(summary.undecided)} have no majority, so the rules decide.`;
  table("counts", summary.reviewers.map(([name, number]) => [name, count(number)]));
  table("agreement", summary.agreement.map((one) => [
    `${one.first}, ${one.second}`, count(one.images), hundredths(one.equal / one.images),
    one.kappa === null ? "not defined" : one.kappa.toFixed(2),
  ]));
}

function table(id, rows) {
  const made = rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((text, column) => {
      const cell = element(column ? "td" : "th", text);
      if (column) cell.className = "number";
      else cell.scope = "row";
      return cell;
    }));
    return row;
  });
  $(id).querySelector("tbody").replaceChildren(...made);
  $(id).hidden = !rows.length;
}

// --- deciding

async function decide(decision, id_class = "", note = $("note").value) {
  const answer = await ask("api/decide", { row: image.row, decision, id_class, note: note.trim() });
  people(answer.summary);
  const against = answer.image.disagree ? `; ${answer.image.others.map((one) => `${one.reviewer}: ${worded(one)}`).join(", ")}` : "";
  report(`Saved: ${worded(answer.image.mine)}${against}.`);
  const inQueue = queue[place] === answer.image.row;
  if (inQueue && place + 1 < queue.length) return step(1);
  render(answer.image);
  if (inQueue) report(`${$("status").textContent} That was the last image of the queue.`);
}

async function undo() {
  if (!summary.undo) return report("There is nothing to undo.");
  const { text } = summary.undo;
  const answer = await ask("api/undo", { time: summary.undo.time });
  people(answer.summary);
  const found = queue.indexOf(answer.image.row);
  if (found >= 0) place = found;
  render(answer.image);
  report(`Undone: ${text}.`);
}

const actions = {
  keep: () => decide("keep"),
  near: () => decide("near"),
  far: () => decide("far"),
  remove: () => askClass(),
  undo,
  previous: () => browse(-1),
  next: () => browse(1),
};

function act(name) {
  const button = document.querySelector(`[data-do=${name}]`);
  if (!image || button.hidden || button.disabled) return;
  alone(actions[name]);
}

// --- which class: a list that typing narrows

let active = 0;

function askClass() {
  const suspect = image.detections.find((one) => one.suspect);
  $("class").value = "";
  $("class").dataset.first = image.mine?.id_class || suspect?.name || "";
  $("why").value = $("note").value;
  $("refusal").textContent = "";
  options();
  $("removal").showModal();
  $("class").focus();
}

function options() {
  const typed = $("class").value.trim().toLowerCase();
  const first = $("class").dataset.first;
  const rank = (name) => (name === first ? 0 : 1) + (typed && !name.toLowerCase().startsWith(typed) ? 2 : 0);
  const names = summary.id_classes.filter((name) => name.toLowerCase().includes(typed)).sort((a, b) => rank(a) - rank(b));
  const items = [...names, OTHER].map((name, index) => {
    const item = element("li", name);
    item.id = `class-${index}`;
    item.setAttribute("role", "option");
    item.addEventListener("click", () => { activate(index); $("removal").querySelector("form").requestSubmit(); });
    return item;
  });
  $("classes").replaceChildren(...items);
  activate(0);
}

function activate(index) {
  const items = [...$("classes").children];
  active = Math.max(0, Math.min(index, items.length - 1));
  items.forEach((item, at) => item.setAttribute("aria-selected", String(at === active)));
  items[active].scrollIntoView({ block: "nearest" });
  $("class").setAttribute("aria-activedescendant", items[active].id);
}

$("class").addEventListener("input", options);
$("class").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") activate(active + 1);
  else if (event.key === "ArrowUp") activate(active - 1);
  else return;
  event.preventDefault();
});
$("cancel").addEventListener("click", () => $("removal").close());
$("removal").querySelector("form").addEventListener("submit", (event) => {
  const chosen = $("classes").children[active].textContent;
  const note = $("why").value.trim();
  if (chosen === OTHER && !note) {
    event.preventDefault();
    $("refusal").textContent = "Add a note: why is the image removed?";
    return $("why").focus();
  }
  alone(() => decide("remove", chosen === OTHER ? "" : chosen, note));
});

// --- keys, buttons, start

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || $("removal").open) return;
  const typing = event.target.matches("select, input:not([type=checkbox])");
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const name = KEYS[event.key] ?? KEYS[event.key.toLowerCase()];
  if (!name || event.repeat) return;
  event.preventDefault();
  act(name);
});
for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => act(button.dataset.do));
for (const id of ["show-labels", "show-suspect", "show-detections"]) $(id).addEventListener("change", draw);
$("filters").addEventListener("change", () => alone(load));
$("filters").addEventListener("submit", (event) => { event.preventDefault(); alone(load); });
addEventListener("resize", draw);

alone(async () => {
  people(await ask("api/summary"));
  for (const [name, choices] of Object.entries(summary.filters)) {
    $("filters").elements[name].append(...choices.map(([value, text]) => new Option(text, value)));
  }
  await load();
});
