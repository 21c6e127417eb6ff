"use strict";
// The dial: a limit chooses the setting, or thresholds are set by hand; bars, curve, images and address follow.
{
  const { MISSED, MISCLASSIFIED, FOUND, NONE, alarmsOf, countsOf, curveOf, load, outcomesOf } = dial;
  const $ = (id) => document.getElementById(id);
  const INDEX = JSON.parse($("dial-index").textContent);
  const SHOWN = 18; // images
  const ALARMS = "false alarm";
  const SHOWS = { found: (one) => one >= FOUND, misclassified: (one) => one === MISCLASSIFIED, missed: (one) => one === MISSED };

  let data; // of the detector that is shown
  // Where `stop` is null, thresholds are set by hand.
  let state = { stop: null, method: "", operating: 0, tau: 0, objectness: NONE, follows: false };

  const element = (tag, text, className) => {
    const result = document.createElement(tag);
    if (text !== undefined) result.textContent = text;
    if (className) result.className = className;
    return result;
  };
  const SVG = "http://www.w3.org/2000/svg";
  const shape = (tag, attributes, text) => {
    const result = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) result.setAttribute(name, value);
    if (text !== undefined) result.textContent = text;
    return result;
  };
  const percent = (value) => `${(100 * value).toFixed(1)}%`;
  const short = (value) => String(Number(value.toPrecision(5))).replace("-", "−");
  const grouped = (number) => number.toLocaleString("en");
  const tauOf = () => data.methods[state.method].taus[state.tau];
  const operatingOf = () => data.operating[state.operating];
  const objectnessOf = () => (state.objectness === NONE ? null : data.objectness[state.objectness]);
  const tauText = () => (tauOf() < -1e29 ? "none flagged" : short(tauOf()));

  // --- what is measured

  // Value, interval, count and total of each bar: on held-out images for a limit, else on all test images.
  function measured() {
    const counts = countsOf(data, state);
    const share = (count, of) => ({ value: of ? count / of : null, count, of });
    const live = {
      found: share(counts.found, counts.objects),
      misclassified: share(counts.misclassified, counts.objects),
      missed: share(counts.missed, counts.objects),
      false_alarms: share(counts.alarms, counts.images),
      recall_lost: share(counts.lost, counts.known),
    };
    const bars = state.stop === null ? live : data.stops[state.stop].bars;
    return { bars, live, byProposals: counts.byProposals };
  }

  function text({ value, interval }) {
    if (value === null) return "—";
    if (!interval) return percent(value);
    return `${percent(value)} [${interval.map((one) => (100 * one).toFixed(1)).join(", ")}]`;
  }

  // --- bars

  const NAMES = { found: "found", misclassified: "misclassified", missed: "missed", false_alarms: "with a false alarm", recall_lost: "lost" };
  const SWATCHES = { found: "#0072b2", misclassified: "#d55e00", missed: "#bdbdbd", false_alarms: "#cc79a7", recall_lost: "#cc79a7" };

  function bar(title, bars, names, limit) {
    const [result, track, list] = [element("div", undefined, "bar"), element("div", undefined, "track"), element("ul")];
    track.setAttribute("aria-hidden", "true"); // the list says it
    for (const name of names) {
      const part = element("span", undefined, name);
      part.style.width = `${100 * (bars[name].value ?? 0)}%`;
      track.append(part);
      const item = element("li", `${NAMES[name]} ${text(bars[name])}`);
      item.style.setProperty("--swatch", SWATCHES[name]);
      list.append(item);
    }
    const [one] = names;
    if (names.length === 1 && bars[one].interval) {
      const [low, high] = bars[one].interval;
      const whisker = element("span", undefined, "whisker");
      whisker.style.left = `${100 * low}%`;
      whisker.style.width = `${100 * (high - low)}%`;
      track.append(whisker);
    }
    if (limit !== undefined) {
      const mark = element("span", undefined, "limit-mark");
      mark.style.left = `${100 * limit}%`;
      track.append(mark);
    }
    result.append(element("p", title), track, list);
    return result;
  }

  function showBars({ bars, live }) {
    const limitOf = (axis) => (axis === data.axis && state.stop !== null ? data.stops[state.stop].limit : undefined);
    $("dial-bars").replaceChildren(
      bar(`${grouped(live.found.of)} unknown objects`, bars, ["found", "misclassified", "missed"]),
      bar(`${grouped(live.false_alarms.of)} ID images`, bars, ["false_alarms"], limitOf("false_alarms")),
      bar(`${grouped(live.recall_lost.of)} known objects`, bars, ["recall_lost"], limitOf("recall_lost")),
    );
  }

  // --- table

  function tableOf(heads, rows, numbers) {
    const [head, body] = [element("thead"), element("tbody")];
    const top = element("tr");
    heads.forEach((name, place) => {
      const cell = element("th", name, numbers[place] ? "number" : "");
      cell.scope = "col";
      top.append(cell);
    });
    head.append(top);
    for (const row of rows) {
      const line = element("tr");
      line.append(...row.map((cell, place) => element("td", cell, numbers[place] ? "number" : "")));
      body.append(line);
    }
    return [head, body];
  }

  function showValues({ live, byProposals }) {
    const isChosen = state.stop !== null;
    const heads = isChosen ? ["", "Held-out images", "n", "Limit"] : ["", "All test images", "n"];
    const numbers = [false, true, true, false];
    const row = (title, one) => [title, text(one), `${grouped(one.count)} of ${grouped(one.of)}`];
    let rows;
    if (isChosen) rows = data.stops[state.stop].rows.map((one) => [one.measure, one.value, one.n, one.limit]);
    else {
      rows = [row("unknown objects found", live.found)];
      if (byProposals) rows.push(row("unknown objects found by proposals", { value: byProposals / live.found.of, count: byProposals, of: live.found.of }));
      rows.push(row("unknown objects misclassified", live.misclassified), row("unknown objects missed", live.missed));
      rows.push(row("ID images with a false alarm", live.false_alarms), row("known objects lost", live.recall_lost));
    }
    $("dial-values").replaceChildren(...tableOf(heads, rows, numbers));
  }

  // --- words

  function showWords() {
    const stop = state.stop === null ? null : data.stops[state.stop];
    $("dial-verdict").textContent = stop ? stop.verdict : "Set by hand: measured on test images, nothing is promised of new ones.";
    $("dial-verdict").className = stop ? { holds: "holds", "too few": "unmet", "not kept": "unmet" }[stop.status] : "";
    const byHand = `${data.titles[state.method]} with t* = ${short(operatingOf())}, ${state.tau === 0 ? "nothing flagged" : `τ = ${tauText()}`}`;
    const called = objectnessOf() === null ? "" : `, and proposals of ${data.source} above ${short(objectnessOf())} called unknown`;
    $("dial-setting").textContent = `${stop ? stop.setting : byHand + called}.`;
    $("dial-source").textContent = stop
      ? "Shares of held-out images with 95% intervals. Images and curve: the setting on all test images."
      : "Shares of all test images, without intervals.";
    for (const [images, name] of [[data.id_images, "ID"], [data.ood_images, "OOD"]]) {
      if (images.names.length < images.of) $("dial-source").append(` Of ${grouped(images.of)} ${name} test images, a sample of ${grouped(images.names.length)} is here.`);
    }
    $("dial-command").textContent = stop ? stop.command : command();
  }

  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`);

  function command() {
    const words = ["farther", "bundle", data.run, state.method, "deployed"];
    const isPipeline = state.operating === data.own && isOwn() && state.objectness === NONE;
    if (!isPipeline) {
      words.push(`--threshold=${operatingOf()}`, `--tau=${tauOf()}`);
      if (objectnessOf() !== null) words.push(`--proposals=${data.source}`, `--objectness=${objectnessOf()}`);
    }
    return words.map(quoted).join(" ");
  }

  const isOwn = () => data.methods[state.method].own[state.operating] === state.tau;

  // --- curve

  const [LEFT, RIGHT, TOP, BOTTOM] = [40, 380, 10, 170];
  let drawn; // what the curve is of
  let curve = [];

  function showCurve({ live }) {
    const { method, operating, objectness } = state;
    const wanted = JSON.stringify([data.run, method, operating, objectness]);
    if (wanted !== drawn) {
      curve = curveOf(data, state);
      drawn = wanted;
    }
    const highest = Math.max(0.05, ...curve.map(([, found]) => found), live.found.value);
    const x = (share) => LEFT + (RIGHT - LEFT) * Math.sqrt(share); // a root, as small shares matter
    const y = (share) => BOTTOM - ((BOTTOM - TOP) * share) / highest;
    const parts = [];
    for (const share of [0, 0.01, 0.05, 0.1, 0.2, 0.5, 1]) {
      parts.push(shape("line", { class: "grid", x1: x(share), x2: x(share), y1: TOP, y2: BOTTOM }));
      parts.push(shape("text", { x: x(share), y: BOTTOM + 15, "text-anchor": "middle" }, `${100 * share}%`));
    }
    for (const share of [0, highest / 2, highest]) {
      parts.push(shape("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: y(share), y2: y(share) }));
      parts.push(shape("text", { x: LEFT - 5, y: y(share) + 4, "text-anchor": "end" }, `${Math.round(100 * share)}%`));
    }
    if (state.stop !== null && data.axis === "false_alarms") {
      const limit = x(data.stops[state.stop].limit);
      parts.push(shape("line", { class: "limit-line", x1: limit, x2: limit, y1: TOP, y2: BOTTOM }));
    }
    parts.push(shape("polyline", { class: "line", points: curve.map(([alarms, found]) => `${x(alarms)},${y(found)}`).join(" ") }));
    parts.push(shape("circle", { class: "here", r: 6, cx: x(live.false_alarms.value ?? 0), cy: y(live.found.value ?? 0) }));
    parts.push(shape("text", { x: (LEFT + RIGHT) / 2, y: BOTTOM + 34, "text-anchor": "middle" }, "ID images with a false alarm, over all τ"));
    $("dial-curve").replaceChildren(...parts);
    $("dial-curve").setAttribute("aria-label", `Over all τ of ${data.titles[method]} at this t*. Here: ${percent(live.found.value ?? 0)} of the unknown objects found, ${percent(live.false_alarms.value ?? 0)} of the ID images with a false alarm.`);
  }

  // --- images

  function imagesWith(show) {
    if (show === ALARMS) {
      const alarms = alarmsOf(data, state);
      return [...data.id_images.names.keys()].filter((image) => alarms[image]);
    }
    const images = new Set();
    outcomesOf(data, state).forEach((outcome, object) => { if (SHOWS[show](outcome)) images.add(data.object_image[object]); });
    return [...images].sort((a, b) => a - b);
  }

  function showImages() {
    const show = $("dial-show").value;
    const isId = show === ALARMS;
    const images = isId ? data.id_images : data.ood_images;
    const found = imagesWith(show);
    const items = found.slice(0, SHOWN).map((image) => {
      const name = images.names[image];
      const split = isId ? data.id_split : data.splits[images.splits[image]];
      const link = element("a");
      const address = { run: data.run, split, method: state.method, image: `${split}/${name}` };
      link.href = `gallery.html#${new URLSearchParams(address)}`;
      const picture = element("img");
      picture.alt = "";
      picture.loading = "lazy";
      if (images.files[image]) picture.src = images.files[image];
      link.append(picture, name);
      const item = element("li");
      item.append(link);
      return item;
    });
    $("dial-images").replaceChildren(...items);
    const rest = found.length > SHOWN ? `, the first ${SHOWN} are here` : "";
    $("dial-count").textContent = `${grouped(found.length)} of ${grouped(images.names.length)} test images${rest}.`;
  }

  // --- controls

  function showControls() {
    const method = data.methods[state.method];
    const slider = (id, last, value, words) => {
      $(id).max = last;
      $(id).value = value;
      $(id).setAttribute("aria-valuetext", words);
      $(`${id}-text`).textContent = words;
    };
    const stop = data.stops[state.stop ?? nearest()];
    slider("dial-limit", data.stops.length - 1, state.stop ?? nearest(), `${Number((100 * stop.limit).toPrecision(3))}%`);
    if (state.stop === null) $("dial-limit-text").textContent = "—";
    slider("dial-operating", data.operating.length - 1, state.operating, short(operatingOf()));
    slider("dial-tau", method.taus.length - 1, state.tau, tauText());
    // The strictest first, as with τ: none at all, then from the highest objectness down.
    const place = state.objectness === NONE ? 0 : data.objectness.length - state.objectness;
    slider("dial-objectness", data.objectness.length, place, objectnessOf() === null ? "none" : short(objectnessOf()));
    $("dial-objectness").disabled = state.operating !== data.own;
    for (const one of document.querySelectorAll("#dial-hand .proposals")) one.hidden = !data.objectness.length;
    $("dial-method").value = state.method;
    $("dial-follow").checked = state.follows;
  }

  let latest = 0; // the last stop of the limit that was chosen
  const nearest = () => latest;

  function show() {
    const values = measured();
    showControls();
    showWords();
    showBars(values);
    showValues(values);
    showCurve(values);
    showImages();
    remember();
  }

  function chooseLimit(number) {
    const { method, operating, tau, objectness } = data.stops[number];
    latest = number;
    state = { stop: number, method, operating, tau, objectness, follows: false };
  }

  // What is set by hand: a new method or t* takes τ as the pipeline does, unless τ was set, too.
  function byHand(changes) {
    state = { ...state, ...changes, stop: null };
    if (state.operating !== data.own) state.objectness = NONE;
    if (state.follows) state.tau = data.methods[state.method].own[state.operating];
  }

  // --- the address

  function remember() {
    const address = new URLSearchParams({ run: data.run });
    if (state.stop !== null) address.set("limit", data.stops[state.stop].limit);
    else {
      address.set("method", state.method);
      address.set("t", operatingOf());
      if (!state.follows) address.set("tau", tauOf());
      if (objectnessOf() !== null) address.set("objectness", objectnessOf());
    }
    if ($("dial-show").value !== "found") address.set("images", $("dial-show").value);
    history.replaceState(null, "", `#${address}`);
  }

  // The number of the stop that is nearest to a number of the address; of none, another one.
  function stopAt(stops, given, otherwise) {
    if (given === null || given === "" || Number.isNaN(Number(given))) return otherwise;
    let best = 0;
    stops.forEach((stop, place) => { if (Math.abs(stop - given) < Math.abs(stops[best] - given)) best = place; });
    return best;
  }

  async function recall() {
    const address = new URLSearchParams(location.hash.slice(1));
    const run = INDEX.find(({ name }) => name === address.get("run")) ?? INDEX[0];
    $("dial-run").value = run.name;
    try {
      data = await load(run.name, run.file);
    } catch (error) {
      $("dial-verdict").textContent = error.message;
      return;
    }
    $("dial-method").replaceChildren(...Object.entries(data.titles).map(([name, title]) => new Option(title, name)));
    $("dial-unit").textContent = data.unit;
    $("dial-show").value = [...Object.keys(SHOWS), ALARMS].includes(address.get("images")) ? address.get("images") : "found";
    const limits = data.stops.map(({ limit }) => limit);
    chooseLimit(stopAt(limits, address.get("limit"), data.budget));
    if (Object.keys(data.methods).includes(address.get("method"))) {
      const method = data.methods[address.get("method")];
      const operating = stopAt(data.operating, address.get("t"), data.own);
      byHand({
        method: address.get("method"),
        operating,
        follows: !address.has("tau"),
        tau: stopAt(method.taus, address.get("tau"), method.own[operating]),
        objectness: stopAt(data.objectness, address.get("objectness"), NONE),
      });
    }
    const more = [...data.notes.map((note) => element("p", note)), element("p", data.table.caption, "caption")];
    const [scroll, table] = [element("div", undefined, "scroll"), element("table")];
    const numbers = data.table.heads.map(([, isNumber]) => isNumber);
    table.append(...tableOf(data.table.heads.map(([head]) => head), data.table.rows.map((row) => row.map(([cell]) => cell)), numbers));
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "group");
    scroll.setAttribute("aria-label", data.table.caption);
    scroll.append(table);
    $("dial-more").replaceChildren(...more, scroll);
    show();
  }

  // --- start

  const changed = {
    "dial-limit": (value) => chooseLimit(Number(value)),
    "dial-method": (value) => byHand({ method: value, follows: true }),
    "dial-operating": (value) => byHand({ operating: Number(value), follows: state.follows || isOwn() || state.stop !== null }),
    "dial-tau": (value) => byHand({ tau: Number(value), follows: false }),
    "dial-objectness": (value) => byHand({ objectness: Number(value) ? data.objectness.length - Number(value) : NONE }),
  };
  for (const [id, change] of Object.entries(changed)) {
    $(id).addEventListener("input", () => {
      change($(id).value);
      show();
    });
  }
  $("dial-follow").addEventListener("change", () => {
    byHand({ follows: $("dial-follow").checked });
    show();
  });
  $("dial-show").addEventListener("change", show);
  $("dial-form").addEventListener("submit", (event) => event.preventDefault());
  $("dial-run").addEventListener("change", () => {
    history.replaceState(null, "", `#${new URLSearchParams({ run: $("dial-run").value })}`);
    recall();
  });
  // Links within the page, such as the one that skips to the content, do not change the setting.
  addEventListener("hashchange", () => { if (location.hash.includes("=")) recall(); });

  $("dial-run").append(...INDEX.map(({ name, title }) => new Option(title, name)));
  $("dial-show").append(...[...Object.keys(SHOWS), ALARMS].map((name) => new Option(name === ALARMS ? "a false alarm" : `${name} objects`, name)));
  $("dial").hidden = false;
  recall();
}
