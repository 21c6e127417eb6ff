"use strict";
// Images by what became of the objects in them. A page that is opened from disk may not fetch, so the data are scripts,
// which call `gallery.add` and `gallery.judge`; `farther/report/gallery/data.py` says what they hold.
{
  const $ = (id) => document.getElementById(id);
  const INDEX = JSON.parse($("gallery-index").textContent);
  const ALL = "";
  // The first three as open_set numbers what becomes of an object.
  const OUTCOMES = ["found", "confounded", "ignored", "false alarm"];
  const SIGNS = ["✓", "≠", "○", "!"];
  const FALSE_ALARM = 3;
  // As open_set numbers what becomes of other objects, and what a detection is.
  const NOT_COUNTED = 3;
  const FALSE_UNKNOWN = 1;
  const KEPT = 2;
  const WHOLE = 65535;
  const BATCH = 24;
  const CHOICES = ["run", "split", "method", "category", "class", "by", "least", "most", "order"];

  const data = new Map(); // key of what a script holds → the same, numbers unpacked
  const waiting = new Map(); // URL of a script → what waits for it
  let loaded = []; // parts of the run and split that are chosen
  let events = []; // what became of each object, and false alarms, by the chosen method
  let cards = []; // images that show events which pass the filters
  let drawn = 0; // how many of them stand on the page
  let open = -1; // the one that is enlarged

  // --- data

  function unpack(text, Type) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
    return new Type(bytes.buffer);
  }

  const COLUMNS = {
    images: { root: Uint16Array, width: Uint32Array, height: Uint32Array },
    objects: { image: Uint32Array, box: Uint16Array, category: Uint16Array, crowd: Uint8Array },
    regions: { image: Uint32Array, box: Uint16Array, label: Uint16Array, confidence: Float32Array },
  };
  const JUDGED = { score: Float32Array, kind: Uint8Array, fate: Uint8Array, region: Int32Array };

  function unpackAll(table, types) {
    for (const [name, Type] of Object.entries(types)) table[name] = unpack(table[name], Type);
    return table;
  }

  // Gives the rows of a table that show an image: they are sorted by image, and where each image starts is noted.
  function byImage(image, count) {
    const start = new Uint32Array(count + 1);
    for (const one of image) start[one + 1] += 1;
    for (let i = 0; i < count; i += 1) start[i + 1] += start[i];
    const next = start.slice();
    const rows = new Uint32Array(image.length);
    image.forEach((one, row) => { rows[next[one]++] = row; });
    return (one) => rows.subarray(start[one], start[one + 1]);
  }

  window.gallery = {
    add(run, split, part) {
      for (const [table, types] of Object.entries(COLUMNS)) unpackAll(part[table], types);
      const count = part.images.id.length;
      part.objectsOf = byImage(part.objects.image, count);
      part.regionsOf = byImage(part.regions.image, count);
      part.split = split;
      data.set(keyOf(run, split), part);
    },
    judge(run, split, method, judged) {
      data.set(keyOf(run, split, method), unpackAll(judged, JUDGED));
    },
  };

  const keyOf = (...names) => JSON.stringify(names);

  // What a script holds, once it is here.
  function load(file, key) {
    if (!waiting.has(file)) {
      waiting.set(file, new Promise((done, failed) => {
        const script = document.createElement("script");
        script.src = file;
        script.onload = () => (data.has(key) ? done(data.get(key)) : script.onerror());
        script.onerror = () => {
          waiting.delete(file);
          failed(new Error(`${file} is not beside this page, or is damaged: make the report again.`));
        };
        document.head.append(script);
      }));
    }
    return waiting.get(file);
  }

  // A split with what a method made of it; a method that was not applied to it made nothing.
  async function loadPart(run, split, method) {
    const file = split.methods[method];
    const [part, judged] = await Promise.all([
      load(split.file, keyOf(run, split.name)),
      file && load(file, keyOf(run, split.name, method)),
    ]);
    return { ...part, method: judged };
  }

  function eventsOf(part) {
    const { objects, regions, method } = part;
    if (!method) return [];
    const made = [];
    const add = (image, outcome, object, region) => made.push({
      part, image, outcome, object, region,
      category: object < 0 ? null : part.categories[objects.category[object]],
      label: region < 0 ? null : part.classes[regions.label[region]],
      score: region < 0 ? NaN : method.score[region],
      confidence: region < 0 ? NaN : regions.confidence[region],
    });
    method.fate.forEach((fate, row) => {
      if (fate !== NOT_COUNTED) add(objects.image[row], fate, row, method.region[row]);
    });
    method.kind.forEach((kind, row) => {
      if (kind === FALSE_UNKNOWN) add(regions.image[row], FALSE_ALARM, -1, row);
    });
    return made;
  }

  // --- choices

  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  function fill(select, options) {
    const before = select.value;
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    select.value = options.some(([value]) => value === before) ? before : options[0][0];
  }

  const chosenRun = () => INDEX.find((run) => run.name === $("run").value);
  const chosenSplits = () => chosenRun().splits.filter((split) => [ALL, split.name].includes($("split").value));
  const chosenOutcomes = () => OUTCOMES.map((_, k) => $(`outcome-${k}`).checked);

  function offerOutcomes() {
    OUTCOMES.forEach((name, k) => {
      const label = element("label");
      const box = Object.assign(element("input"), { type: "checkbox", id: `outcome-${k}`, checked: true });
      const count = Object.assign(element("span", "", "count"), { id: `count-${k}` });
      label.append(box, element("span", SIGNS[k], "sign"), ` ${name} `, count);
      $("outcomes").append(label);
    });
  }

  function offerRun() {
    const run = chosenRun();
    fill($("split"), [[ALL, "all OOD splits"], ...run.splits.map((split) => [split.name, split.title])]);
    const had = run.methods.some((method) => method.name === $("method").value);
    fill($("method"), run.methods.map((method) => [method.name, method.title]));
    if (!had) $("method").value = run.method;
  }

  // Names with how many events each would leave, all other filters as they are; the chosen one stays, even with none.
  function offerNames(select, counts) {
    const names = [...counts.keys()].sort();
    const value = select.value;
    if (value && !counts.has(value)) names.push(value);
    const titled = names.map((name) => [name, `${name} (${grouped(counts.get(name) ?? 0)})`]);
    fill(select, [[ALL, "all"], ...titled]);
  }

  // --- filters

  const limit = (id, otherwise) => ($(id).value === "" ? otherwise : Number($(id).value));

  function select() {
    const outcomes = chosenOutcomes();
    const [category, label, by] = [$("category").value, $("class").value, $("by").value];
    const [least, most] = [limit("least", -Infinity), limit("most", Infinity)];
    const isLimited = least > -Infinity || most < Infinity;
    const counts = { outcome: OUTCOMES.map(() => 0), category: new Map(), label: new Map() };
    const count = (map, name) => name !== null && map.set(name, (map.get(name) ?? 0) + 1);
    const passed = [];
    for (const event of events) {
      if (isLimited && !(event[by] >= least && event[by] <= most)) continue;
      const other = [category && event.category !== category, label && event.label !== label];
      const fails = [!outcomes[event.outcome], ...other];
      const failed = fails.filter(Boolean).length;
      if (failed === 0) passed.push(event);
      const matters = (k) => failed === 0 || (failed === 1 && fails[k]);
      if (matters(0)) counts.outcome[event.outcome] += 1;
      if (matters(1)) count(counts.category, event.category);
      if (matters(2)) count(counts.label, event.label);
    }
    counts.outcome.forEach((number, k) => { $(`count-${k}`).textContent = grouped(number); });
    offerNames($("category"), counts.category);
    offerNames($("class"), counts.label);
    return passed;
  }

  function group(passed) {
    const made = new Map();
    for (const part of loaded) made.set(part, new Map());
    for (const event of passed) {
      const images = made.get(event.part);
      if (!images.has(event.image)) images.set(event.image, { part: event.part, image: event.image, events: [] });
      images.get(event.image).events.push(event);
    }
    const found = [...made.values()].flatMap((images) => [...images.values()].sort((a, b) => a.image - b.image));
    const by = $("by").value;
    const order = $("order").value;
    if (order === "table") return found;
    const sign = order === "rising" ? 1 : -1;
    for (const card of found) {
      card.key = Infinity; // without any score: at the end
      for (const event of card.events) if (sign * event[by] < card.key) card.key = sign * event[by];
    }
    return found.sort((a, b) => (a.key === b.key ? 0 : a.key - b.key));
  }

  function showRange() {
    let [low, high] = [Infinity, -Infinity];
    for (const event of events) {
      const value = event[$("by").value];
      if (value < low) low = value;
      if (value > high) high = value;
    }
    $("least").placeholder = low <= high ? short(low) : "";
    $("most").placeholder = low <= high ? short(high) : "";
  }

  function apply() {
    if (asked !== answered) return; // what is being loaded will be shown with these filters
    showRange();
    const passed = select();
    cards = group(passed);
    drawn = 0;
    $("cards").replaceChildren();
    const judged = loaded.find((part) => part.method);
    const tau = judged ? ` Flagged as unknown below τ = ${short(judged.method.tau)}.` : "";
    const alarms = passed.filter((event) => event.outcome === FALSE_ALARM).length;
    const things = [[passed.length - alarms, "unknown object"], [alarms, "false alarm"]].filter(([number]) => number);
    $("status").textContent = things.length
      ? `${things.map(([number, name]) => counted(number, name)).join(" and ")} in ${counted(cards.length, "image")}.${tau}`
      : `Nothing passes these filters.${tau}`;
    $("left-out").textContent = chosenSplits()
      .filter((split) => split.images < split.of)
      .map((split) => `${split.title}: ${grouped(split.images)} of ${counted(split.of, "image")}`)
      .join("; ");
    if ($("left-out").textContent) $("left-out").append(". They are evenly spread over the split; the counts are of these.");
    more();
    remember();
  }

  const short = (value) => String(Number(value.toPrecision(4))).replace("-", "−");
  const grouped = (number) => number.toLocaleString("en");
  const counted = (number, name) => `${grouped(number)} ${name}${number === 1 ? "" : "s"}`;

  // Only the latest choice counts, whichever data arrives last.
  let asked = 0;
  let answered = 0;
  async function choose() {
    const mine = (asked += 1);
    const [run, method] = [$("run").value, $("method").value];
    $("status").textContent = "Loading…";
    try {
      const arrived = await Promise.all(chosenSplits().map((split) => loadPart(run, split, method)));
      if (mine !== asked) return;
      answered = mine;
      loaded = arrived;
      events = loaded.flatMap(eventsOf);
      apply();
    } catch (error) {
      if (mine !== asked) return;
      answered = mine;
      [loaded, events, cards] = [[], [], []];
      $("cards").replaceChildren();
      $("more").hidden = true;
      $("status").textContent = error.message;
    }
  }

  // --- the address

  function remember() {
    const state = new URLSearchParams();
    for (const id of CHOICES) {
      if ($(id).value !== (id === "by" ? "score" : id === "order" ? "table" : ALL)) state.set(id, $(id).value);
    }
    const outcomes = chosenOutcomes();
    if (!outcomes.every(Boolean)) state.set("outcome", OUTCOMES.filter((_, k) => outcomes[k]).join(","));
    if (open >= 0) state.set("image", nameOf(cards[open]));
    history.replaceState(null, "", `#${state}`);
  }

  const nameOf = (card) => `${card.part.split}/${card.part.images.id[card.image]}`;

  async function recall() {
    const state = new URLSearchParams(location.hash.slice(1));
    const given = (id) => state.get(id) ?? ALL;
    const runs = INDEX.map((run) => run.name);
    $("run").value = runs.includes(given("run")) ? given("run") : runs[0];
    $("method").replaceChildren();
    offerRun();
    const offered = (id) => [...$(id).options].some((option) => option.value === given(id));
    // Who asks for nothing gets the first split: all of them may be much.
    const isAsked = state.has("split") || state.has("run");
    $("split").value = !isAsked ? chosenRun().splits[0].name : offered("split") ? given("split") : ALL;
    if (offered("method")) $("method").value = given("method");
    for (const id of ["category", "class"]) $(id).replaceChildren(new Option(given(id) || "all", given(id)));
    $("by").value = given("by") === "confidence" ? "confidence" : "score";
    $("order").value = offered("order") ? given("order") : "table";
    for (const id of ["least", "most"]) $(id).value = given(id);
    const outcomes = state.has("outcome") ? given("outcome").split(",") : OUTCOMES;
    OUTCOMES.forEach((name, k) => { $(`outcome-${k}`).checked = outcomes.includes(name); });
    const image = given("image");
    open = -1;
    $("large").close();
    await choose();
    const place = image ? cards.findIndex((card) => nameOf(card) === image) : -1;
    if (place >= 0) enlarge(place);
  }

  // --- pictures

  const SVG = "http://www.w3.org/2000/svg";
  const shape = (tag, attributes) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };

  function place(box, row, width, height) {
    const [left, top, right, bottom] = box.subarray(4 * row, 4 * row + 4);
    const [x, y] = [(left / WHOLE) * width, (top / WHOLE) * height];
    return { x, y, width: (right / WHOLE) * width - x, height: (bottom / WHOLE) * height - y };
  }

  function truthMark({ objects, categories, method }, row) {
    const text = categories[objects.category[row]] + (objects.crowd[row] ? " (group)" : "");
    const fate = method.fate[row];
    return { kind: "truth", text, words: `${text}: ${fate === NOT_COUNTED ? "not counted" : `${SIGNS[fate]} ${OUTCOMES[fate]}`}` };
  }

  function detectionMark({ regions, classes, method }, row) {
    const kind = method.kind[row];
    // Of detections that are not looked at, the score alone tells whether they would be flagged.
    const isFlagged = kind < KEPT || (kind > KEPT && method.score[row] < method.tau);
    const name = `${classes[regions.label[row]]} ${(100 * regions.confidence[row]).toFixed(0)}%`;
    const verdict = isFlagged ? `flagged as unknown${kind === FALSE_UNKNOWN ? " (! false alarm)" : ""}` : "kept";
    const words = `${name}, score ${short(method.score[row])}: ${verdict}`;
    return { kind: isFlagged ? "unknown" : "known", text: isFlagged ? `? ${name}` : name, words };
  }

  // Ground truth and detections; those that the filters ask for last, so that they lie on top.
  function marksOf({ part, image, events: asked }) {
    const size = [part.images.width[image], part.images.height[image]];
    const objects = new Set(asked.map((event) => event.object));
    const regions = new Set(asked.map((event) => event.region));
    const marks = [
      ...[...part.objectsOf(image)].map((row) => ({
        ...truthMark(part, row), ...place(part.objects.box, row, ...size), isWanted: objects.has(row),
      })),
      ...[...part.regionsOf(image)].map((row) => ({
        ...detectionMark(part, row), ...place(part.regions.box, row, ...size), isWanted: regions.has(row),
      })),
    ];
    return marks.sort((a, b) => a.isWanted - b.isWanted);
  }

  function drawMark(mark, width, height, size) {
    const made = shape("g", { class: `mark ${mark.kind}${mark.isWanted ? "" : " other"}` });
    const box = { x: mark.x, y: mark.y, width: mark.width, height: mark.height };
    if (mark.kind === "truth") made.append(shape("rect", { class: "halo", ...box }));
    made.append(shape("rect", { class: "edge", ...box }));
    if (!size) return made;
    // Above the box for a detection, at its lower edge for ground truth, so that the two do not hide each other.
    const plate = { width: size * (0.63 * mark.text.length + 0.6), height: 1.35 * size };
    const x = Math.max(Math.min(mark.x, width - plate.width), 0);
    const wanted = mark.kind === "truth" ? mark.y + mark.height : mark.y - plate.height;
    const y = Math.max(Math.min(wanted, height - plate.height), 0);
    const text = shape("text", { x: x + 0.3 * size, y: y + size, style: `font-size: ${size}px` });
    text.textContent = mark.text;
    made.append(shape("rect", { class: "plate", x, y, ...plate }), text);
    return made;
  }

  function picture(card, isLarge) {
    const { images, roots } = card.part;
    const [width, height] = [images.width[card.image], images.height[card.image]];
    const root = roots[images.root[card.image]];
    const marks = marksOf(card);
    const made = element("span", undefined, "shot");
    if (isLarge) made.style.aspectRatio = `${width} / ${height}`;
    const missing = (text) => made.replaceChildren(element("span", text, "missing"));
    if (root === null) {
      missing("params.yaml does not say where this dataset lies.");
      return { made, marks };
    }
    const img = element("img");
    img.loading = isLarge ? "eager" : "lazy";
    img.decoding = "async";
    img.alt = `Image ${images.id[card.image]}: ${marks.map((mark) => mark.words).join("; ")}`;
    img.onerror = () => missing(`Not on this machine: ${decodeURIComponent(img.getAttribute("src"))}`);
    img.onload = () => {
      const [w, h] = [img.naturalWidth, img.naturalHeight];
      if (w === width && h === height) return;
      made.querySelector("svg").remove();
      const sizes = `this file has ${w} × ${h} pixels, the tables say ${width} × ${height}`;
      made.append(element("span", `Shown without boxes: ${sizes}.`, "missing"));
    };
    img.src = `${root}/${images.file[card.image]}`;
    const overlay = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const size = Math.max(width, height) / (isLarge && innerWidth > 700 ? 45 : 21);
    for (const mark of marks) overlay.append(drawMark(mark, width, height, isLarge || mark.isWanted ? size : 0));
    made.append(img, overlay);
    return { made, marks };
  }

  function words(event) {
    const name = `${SIGNS[event.outcome]} ${OUTCOMES[event.outcome]}`;
    if (event.region < 0) return `${name}: ${event.category}`;
    const how = `${event.label} ${(100 * event.confidence).toFixed(0)}%, score ${short(event.score)}`;
    return `${name}: ${event.object < 0 ? how : `${event.category}, detected as ${how}`}`;
  }

  // --- cards

  function card(number) {
    const one = cards[number];
    const button = element("button", undefined, "card");
    button.type = "button";
    button.dataset.place = number;
    const shown = one.events.slice(0, 3).map((event) => element("span", words(event), "event"));
    if (one.events.length > 3) shown.push(element("span", `and ${one.events.length - 3} more`, "event"));
    button.append(picture(one, false).made, element("b", one.part.images.id[one.image]), ...shown);
    const item = element("li");
    item.append(button);
    return item;
  }

  function more() {
    const end = Math.min(drawn + BATCH, cards.length);
    const items = [];
    for (; drawn < end; drawn += 1) items.push(card(drawn));
    $("cards").append(...items);
    $("more").hidden = drawn === cards.length;
    $("more").textContent = `Show more (${grouped(drawn)} of ${counted(cards.length, "image")})`;
    // Asked anew, the observer tells whether the button is in sight now.
    watcher.unobserve($("more"));
    if (drawn < cards.length) watcher.observe($("more"));
  }

  const seen = (entries) => entries.some((one) => one.isIntersecting) && more();
  const watcher = new IntersectionObserver(seen, { rootMargin: "600px" });

  function focusCard(number) {
    while (drawn <= number && drawn < cards.length) more();
    $("cards").children[number]?.firstElementChild.focus();
  }

  // How many cards stand in a row.
  function columns() {
    const items = [...$("cards").children];
    const below = items.findIndex((item) => item.offsetTop > items[0].offsetTop);
    return below < 0 ? items.length : below;
  }

  function walk(event) {
    const from = Number(event.target.closest(".card")?.dataset.place ?? NaN);
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? drawn - 1 : from + step;
    if (Number.isNaN(to) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (to >= 0 && to < cards.length) focusCard(to);
  }

  // --- one image, enlarged

  function enlarge(number) {
    if (number < 0 || number >= cards.length) return;
    open = number;
    const one = cards[number];
    const { made, marks } = picture(one, true);
    $("large-name").textContent = one.part.images.id[one.image];
    const split = one.part.split.replaceAll("_", " ");
    $("large-place").textContent = `${grouped(number + 1)} of ${counted(cards.length, "image")}, ${split}`;
    $("large-picture").replaceChildren(made);
    const section = (title, lines) => {
      const [made, list] = [element("section"), element("ul")];
      list.append(...lines.map((line) => element("li", line)));
      made.append(element("h3", title), list);
      return lines.length ? [made] : [];
    };
    $("large-words").replaceChildren(
      ...section("What the filters ask for", one.events.map(words)),
      ...section("Ground truth", marks.filter((mark) => mark.kind === "truth").map((mark) => mark.words)),
      ...section("Detections", marks.filter((mark) => mark.kind !== "truth").map((mark) => mark.words)),
    );
    // Not `disabled`, which would take the focus, and the keys with it.
    $("previous").setAttribute("aria-disabled", number === 0);
    $("next").setAttribute("aria-disabled", number === cards.length - 1);
    if (!$("large").open) $("large").showModal();
    remember();
  }

  function leave() {
    if (open < 0 || $("large").open) return; // an address was opened meanwhile
    const last = open;
    open = -1;
    remember();
    focusCard(last);
  }

  // --- start

  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("change", (event) => {
    if (event.target === $("run")) offerRun();
    // Limits to one score say nothing about another.
    if (["run", "method", "by"].includes(event.target.id)) $("least").value = $("most").value = ALL;
    if (["run", "split", "method"].includes(event.target.id)) choose();
    else apply();
  });
  $("reset").addEventListener("click", (event) => {
    event.preventDefault();
    for (const id of ["category", "class", "least", "most"]) $(id).value = ALL;
    OUTCOMES.forEach((_, k) => { $(`outcome-${k}`).checked = true; });
    apply();
  });
  $("cards").addEventListener("click", (event) => {
    const button = event.target.closest(".card");
    if (button) enlarge(Number(button.dataset.place));
  });
  $("cards").addEventListener("keydown", walk);
  $("more").addEventListener("click", () => {
    const first = drawn;
    more();
    focusCard(first);
  });
  $("previous").addEventListener("click", () => enlarge(open - 1));
  $("next").addEventListener("click", () => enlarge(open + 1));
  $("close").addEventListener("click", () => $("large").close());
  $("large").addEventListener("close", leave);
  $("large").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) enlarge(open + step);
  });
  // Links within the page, such as the one that skips to the content, say nothing about the view.
  addEventListener("hashchange", () => { if (location.hash.includes("=")) recall(); });

  fill($("run"), INDEX.map((run) => [run.name, run.name]));
  offerOutcomes();
  recall();
}
