"use strict";
// Images by the outcomes of the objects in them: filters, cards, and one image enlarged.
{
  const { OUTCOMES, SIGNS, MISSED, FALSE_UNKNOWN, UNLABELLED, COVERED, FALSE_PROPOSAL, AS_UNKNOWN, AS_MISSED } = gallery;
  const { acceptance, element, eventsOf, loadPart, picture, short, words } = gallery;
  const $ = (id) => document.getElementById(id);
  const INDEX = JSON.parse($("gallery-index").textContent);
  const ALL = "";
  const BATCH = 24;
  const NONE = "none"; // no source of proposals
  const CHOICES = ["run", "split", "method", "source", "category", "class", "subset", "other", "accepted", "by", "least", "most", "order"];
  const DISTANCE = "distance:"; // begins the value of a choice of all splits of a distance
  // Outcomes in the order of the page, those of OOD splits, and those of the ID test split.
  const ORDER = [0, 1, 6, 7, 8, COVERED, MISSED, FALSE_UNKNOWN, FALSE_PROPOSAL, UNLABELLED];
  const OF_OOD = [0, 1, COVERED, MISSED, FALSE_UNKNOWN, UNLABELLED];
  const OF_ID = [6, 7, 8, MISSED, FALSE_UNKNOWN, FALSE_PROPOSAL];

  let loaded = []; // parts of the run and split that are chosen
  let events = []; // outcomes of objects and detections, of the chosen method
  let cards = []; // images with events that pass the filters
  let drawn = 0; // number of them on the page
  let open = -1; // the one that is enlarged
  let expected = 0; // number that the link to this view stood on, of all images of the splits; 0 without one

  // --- choices

  function fill(select, options) {
    const before = select.value;
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    select.value = options.some(([value]) => value === before) ? before : options[0][0];
  }

  const chosenRun = () => INDEX.find((run) => run.name === $("run").value);
  const chosenSplits = () => {
    const value = $("split").value;
    return chosenRun().splits.filter((split) => {
      if (value === ALL) return !split.is_id;
      return [split.name, DISTANCE + split.distance].includes(value);
    });
  };
  const chosenOutcomes = () => OUTCOMES.map((_, k) => $(`outcome-${k}`).checked);

  function offerOutcomes() {
    ORDER.forEach((k) => {
      const label = element("label");
      const box = Object.assign(element("input"), { type: "checkbox", id: `outcome-${k}`, checked: true });
      const count = Object.assign(element("span", "", "count"), { id: `count-${k}` });
      label.append(box, element("span", SIGNS[k], "sign"), element("span", ` ${OUTCOMES[k]} `, "name"), count);
      $("outcomes").append(label);
    });
  }

  function offerRun() {
    const run = chosenRun();
    const distances = [...new Set(run.splits.filter((split) => !split.is_id).map((split) => split.distance))];
    fill($("split"), [
      [ALL, "all OOD splits"],
      ...distances.map((distance) => [DISTANCE + distance, `all ${distance} OOD splits`]),
      ...run.splits.map((split) => [split.name, split.title]),
    ]);
    const had = run.methods.some((method) => method.name === $("method").value);
    fill($("method"), run.methods.map((method) => [method.name, method.title]));
    if (!had) $("method").value = run.method;
    const sources = run.sources.map(({ name }) => name);
    fill($("source"), [...sources, NONE].map((name) => [name, name]));
    $("source").value = run.sources[0]?.name ?? NONE;
    const others = INDEX.filter((other) => other.benchmark === run.benchmark && other !== run);
    fill($("other"), [[ALL, "any"], ...others.map((other) => [other.name, other.title])]);
    $("other").parentElement.hidden = !others.length;
    for (const id of ["source", "show-proposed"]) $(id).parentElement.hidden = !run.sources.length;
  }

  // The rate of false alarms at which the proposals of a source cover objects.
  const atRate = (source) => {
    const { alarms } = chosenRun().sources.find(({ name }) => name === source);
    return `at ${alarms.toFixed(2)} false alarms per ID image`;
  };

  // Predictions that are no class: at the end, and in words.
  const TITLES = new Map([[AS_UNKNOWN, "unknown (flagged)"], [AS_MISSED, "missed"]]);

  // Names with how many events each would leave, all other filters as they are; the chosen one stays, even with none.
  function offerNames(select, counts) {
    const names = [...counts.keys()].sort();
    const value = select.value;
    if (value && !counts.has(value)) names.push(value);
    names.sort((a, b) => TITLES.has(a) - TITLES.has(b));
    const titled = names.map((name) => [name, `${TITLES.get(name) ?? name} (${grouped(counts.get(name) ?? 0)})`]);
    fill(select, [[ALL, "all"], ...titled]);
  }

  // --- filters

  const limit = (id, otherwise) => ($(id).value === "" ? otherwise : Number($(id).value));

  function select() {
    const outcomes = chosenOutcomes();
    const [category, label, by] = [$("category").value, $("class").value, $("by").value];
    const subset = $("subset").value;
    const isCompared = $("other").value !== ALL;
    const [least, most] = [limit("least", -Infinity), limit("most", Infinity)];
    const isLimited = least > -Infinity || most < Infinity;
    const counts = { outcome: OUTCOMES.map(() => 0), category: new Map(), label: new Map(), subset: new Map() };
    const count = (map, name) => name !== null && map.set(name, (map.get(name) ?? 0) + 1);
    const passed = [];
    const wanted = $("accepted").value;
    for (const event of events) {
      if (wanted && event.part.rejected?.[event.image] !== (wanted === "rejected")) continue;
      if (isLimited && !(event[by] >= least && event[by] <= most)) continue;
      if (isCompared && !differs(event)) continue;
      const fails = [
        !outcomes[event.outcome],
        category && event.category !== category,
        label && !event.predicted.includes(label),
        subset && !event.subsets.includes(subset),
      ];
      const failed = fails.filter(Boolean).length;
      if (failed === 0) passed.push(event);
      const matters = (k) => failed === 0 || (failed === 1 && fails[k]);
      if (matters(0)) counts.outcome[event.outcome] += 1;
      if (matters(1)) count(counts.category, event.category);
      if (matters(2)) for (const name of event.predicted) count(counts.label, name);
      if (matters(3)) for (const name of event.subsets) count(counts.subset, name);
    }
    counts.outcome.forEach((number, k) => { $(`count-${k}`).textContent = grouped(number); });
    offerNames($("category"), counts.category);
    offerNames($("class"), counts.label);
    offerNames($("subset"), counts.subset);
    return passed;
  }

  // Whether the other detector does something else with the object of an event.
  function differs({ part, object, elsewhere }) {
    return elsewhere !== null && elsewhere !== gallery.OF_OBJECT[part.method.object[object]];
  }

  function group(passed) {
    const result = new Map();
    for (const part of loaded) result.set(part, new Map());
    for (const event of passed) {
      const images = result.get(event.part);
      if (!images.has(event.image)) images.set(event.image, { part: event.part, image: event.image, events: [] });
      images.get(event.image).events.push(event);
    }
    const found = [...result.values()].flatMap((images) => [...images.values()].sort((a, b) => a.image - b.image));
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
    if (asked !== answered) return; // data on their way will be shown with these filters
    showRange();
    const passed = select();
    cards = group(passed);
    drawn = 0;
    $("cards").replaceChildren();
    const measured = loaded.find((part) => part.method);
    const tau = measured ? ` Flagged as unknown below τ = ${short(measured.method.tau)}.` : "";
    offerOutcomesOfSplits();
    const things = thingsOf(passed).filter(([number]) => number);
    const isSampled = passed.length < expected;
    const of = isSampled ? `${grouped(passed.length)} of ${grouped(expected)} shown: ` : "";
    $("status").textContent = things.length || isSampled
      ? `${of}${withAnd(things.map(([number, name]) => counted(number, name)))} in ${counted(cards.length, "image")}.${tau}`
      : `No image passes these filters.${tau}`;
    $("left-out").textContent = chosenSplits()
      .filter((split) => split.images < split.of)
      .map((split) => `${split.title}: ${grouped(split.images)} of ${counted(split.of, "image")}`)
      .join("; ");
    if ($("left-out").textContent) $("left-out").append(". They are evenly spread over the split; the counts are of these.");
    more();
    remember();
  }

  // Shows the outcomes that objects of the chosen splits can have, under the names that they have there.
  function offerOutcomesOfSplits() {
    const splits = chosenSplits();
    const possible = new Set(splits.flatMap((split) => (split.is_id ? OF_ID : OF_OOD)));
    const isCalled = $("source").value !== NONE;
    if (!isCalled) [COVERED, FALSE_PROPOSAL].forEach((k) => possible.delete(k));
    if (!events.some((event) => event.outcome === UNLABELLED)) possible.delete(UNLABELLED);
    ORDER.forEach((k) => { $(`outcome-${k}`).parentElement.hidden = !possible.has(k); });
    const rename = (k, name) => { $(`outcome-${k}`).parentElement.querySelector(".name").textContent = ` ${name} `; };
    if (isCalled) rename(COVERED, `${OUTCOMES[COVERED]}, ${atRate($("source").value)}`);
    rename(MISSED, possible.has(COVERED) ? "missed, no proposal covers it" : "missed");
  }

  // Numbers and names of what passed the filters.
  function thingsOf(passed) {
    const numberOf = (condition) => passed.filter(condition).length;
    return [
      [numberOf((event) => event.object >= 0 && !event.isKnown), "unknown object"],
      [numberOf((event) => event.isKnown), "known object"],
      [numberOf((event) => event.outcome === FALSE_UNKNOWN), "false unknown"],
      [numberOf((event) => event.outcome === FALSE_PROPOSAL), "false proposal"],
      [numberOf((event) => event.outcome === UNLABELLED), "unannotated place"],
    ];
  }

  const withAnd = (texts) => [texts.slice(0, -1).join(", "), ...texts.slice(-1)].filter(Boolean).join(" and ");
  const grouped = (number) => number.toLocaleString("en");
  const counted = (number, name) => `${grouped(number)} ${name}${number === 1 ? "" : "s"}`;

  // A part with the same split of the detector that it is compared with, if one is chosen and has it.
  async function loadCompared(run, split, method, source) {
    const part = await loadPart(run, split, method, source);
    const compared = INDEX.find((one) => one.name === $("other").value);
    const there = compared?.splits.find((one) => one.name === split.name);
    if (!there) return part;
    const name = there.methods[method] ? method : compared.method;
    const other = await loadPart(compared.name, there, name, NONE);
    return { ...part, other: { ...other, title: compared.title } };
  }

  // Only the latest choice counts, in whatever order data arrive.
  let asked = 0;
  let answered = 0;
  async function choose() {
    const mine = (asked += 1);
    const [run, method, source] = ["run", "method", "source"].map((id) => $(id).value);
    $("status").textContent = "Loading…";
    try {
      const arrived = await Promise.all(chosenSplits().map((split) => loadCompared(run, split, method, source)));
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
    const usual = { by: "score", order: "table", source: chosenRun().sources[0]?.name ?? NONE };
    for (const id of CHOICES) if ($(id).value !== (usual[id] ?? ALL)) state.set(id, $(id).value);
    const outcomes = chosenOutcomes();
    if (!outcomes.every(Boolean)) state.set("outcome", namesOf(outcomes).join(","));
    if (expected) state.set("of", expected);
    if (open >= 0) state.set("image", nameOf(cards[open]));
    history.replaceState(null, "", `#${state}`);
  }

  // Outcomes by their names in the address: `missed` are all missed objects, `covered` and `uncovered` two parts of them.
  function namesOf(outcomes) {
    const names = OUTCOMES.filter((_, k) => outcomes[k] && ![MISSED, COVERED].includes(k));
    const isDivided = chosenRun().sources.length && outcomes[MISSED] !== outcomes[COVERED];
    if (outcomes[MISSED]) names.push(isDivided ? "uncovered" : "missed");
    else if (isDivided) names.push("covered");
    return names;
  }

  // Earlier addresses call covered objects "found by proposals".
  function outcomesOf(names) {
    const has = (...some) => some.some((name) => names.includes(name));
    return OUTCOMES.map((name, k) => {
      if (k === MISSED) return has("missed", "uncovered");
      if (k === COVERED) return has("missed", "covered", "found by proposals");
      return has(name);
    });
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
    // The default is the first split: all of them may be large.
    const isAsked = state.has("split") || state.has("run");
    $("split").value = !isAsked ? chosenRun().splits[0].name : offered("split") ? given("split") : ALL;
    for (const id of ["method", "source", "other"]) if (offered(id)) $(id).value = given(id);
    for (const id of ["category", "class", "subset"]) $(id).replaceChildren(new Option(given(id) || "all", given(id)));
    $("by").value = given("by") === "confidence" ? "confidence" : "score";
    $("order").value = offered("order") ? given("order") : "table";
    for (const id of ["least", "most"]) $(id).value = given(id);
    $("accepted").value = ["accepted", "rejected"].includes(given("accepted")) ? given("accepted") : ALL;
    const outcomes = state.has("outcome") ? outcomesOf(given("outcome").split(",")) : OUTCOMES.map(() => true);
    outcomes.forEach((isChosen, k) => { $(`outcome-${k}`).checked = isChosen; });
    expected = Number(given("of")) || 0;
    const image = given("image");
    open = -1;
    $("large").close();
    await choose();
    const place = image ? cards.findIndex((card) => nameOf(card) === image) : -1;
    if (place >= 0) enlarge(place);
  }

  // --- cards

  function card(number) {
    const one = cards[number];
    const button = element("button", undefined, "card");
    button.type = "button";
    button.dataset.place = number;
    const shown = one.events.slice(0, 3).map((event) => element("span", words(event), "event"));
    if (one.events.length > 3) shown.push(element("span", `and ${one.events.length - 3} more`, "event"));
    if (one.part.rejected?.[one.image]) shown.push(element("span", acceptance(one), "event"));
    button.append(picture(one, false).shot, element("b", one.part.images.id[one.image]), ...shown);
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
    // Observed again, it reports whether the button is visible now.
    watcher.unobserve($("more"));
    if (drawn < cards.length) watcher.observe($("more"));
  }

  const seen = (entries) => entries.some((one) => one.isIntersecting) && more();
  const watcher = new IntersectionObserver(seen, { rootMargin: "600px" });

  function focusCard(number) {
    while (drawn <= number && drawn < cards.length) more();
    $("cards").children[number]?.firstElementChild.focus();
  }

  // Number of cards in a row.
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
    const { shot, marks } = picture(one, true);
    $("large-name").textContent = one.part.images.id[one.image];
    const split = one.part.split.replaceAll("_", " ");
    $("large-place").textContent = `${grouped(number + 1)} of ${counted(cards.length, "image")}, ${split}`;
    $("large-picture").replaceChildren(shot);
    const section = (title, lines) => {
      const [result, list] = [element("section"), element("ul")];
      list.append(...lines.map((line) => element("li", line)));
      result.append(element("h3", title), list);
      return lines.length ? [result] : [];
    };
    $("large-words").replaceChildren(
      ...section("Image", [acceptance(one)].filter(Boolean)),
      ...section("Outcomes that pass the filters", one.events.map(words)),
      ...section("Ground truth", marks.filter((mark) => mark.kind === "truth").map((mark) => mark.words)),
      ...section("Detections", marks.filter((mark) => ["known", "unknown"].includes(mark.kind)).map((mark) => mark.words)),
      ...section("Proposals", marks.filter((mark) => mark.kind === "proposed").map((mark) => mark.words)),
    );
    // Not `disabled`, which would take the focus, and the keys with it.
    $("previous").setAttribute("aria-disabled", number === 0);
    $("next").setAttribute("aria-disabled", number === cards.length - 1);
    if (!$("large").open) $("large").showModal();
    remember();
  }

  function leave() {
    if (open < 0 || $("large").open) return; // another address was opened meanwhile
    const last = open;
    open = -1;
    remember();
    focusCard(last);
  }

  // --- start

  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("change", (event) => {
    expected = 0;
    if (event.target === $("run")) offerRun();
    // A range of one score does not apply to another.
    if (["run", "method", "by"].includes(event.target.id)) $("least").value = $("most").value = ALL;
    if (["run", "split", "method", "source", "other"].includes(event.target.id)) choose();
    else apply();
  });
  $("reset").addEventListener("click", (event) => {
    event.preventDefault();
    for (const id of ["category", "class", "subset", "accepted", "least", "most"]) $(id).value = ALL;
    OUTCOMES.forEach((_, k) => { $(`outcome-${k}`).checked = true; });
    expected = 0;
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
  // Links within the page, such as the one that skips to the content, do not change the view.
  addEventListener("hashchange", () => { if (location.hash.includes("=")) recall(); });

  fill($("run"), INDEX.map((run) => [run.name, run.title]));
  offerOutcomes();
  recall();
}
