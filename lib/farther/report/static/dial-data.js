"use strict";
// What a setting finds and costs: the rules of `farther/metrics/open_set/outcomes.py`, on the data of
// `farther/evaluation/deploy/dial.py`. A setting is a method and the numbers of its stops: `operating` of t*, `tau` of τ,
// and `objectness`, −1 where no proposal is called unknown.
globalThis.dial = { MISSED: 0, MISCLASSIFIED: 1, FOUND: 2, RECOVERED: 3, NONE: -1 };
{
  const { MISSED, MISCLASSIFIED, FOUND, RECOVERED, NONE } = dial;
  const NEVER_FLAGGED = -1; // no level of τ is as small
  const CURVE_POINTS = 60;

  function unpack(text, Type) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
    return new Type(bytes.buffer);
  }

  function unpackPairs(pairs) {
    const number = unpack(pairs.number, Uint16Array);
    const end = new Uint32Array(number.length);
    let sum = 0;
    number.forEach((count, region) => { end[region] = sum += count; });
    return { operating: unpack(pairs.operating, Uint8Array), end, object: unpack(pairs.object, Uint32Array) };
  }

  // The numbers of a run's data in place of their texts.
  function unpackAll(data) {
    for (const name of ["unknown", "known"]) data[name] = unpackPairs(data[name]);
    for (const name of ["keeps", "reusable", "recovered", "called"]) data[name] = unpack(data[name], Uint8Array);
    data.object_image = unpack(data.object_image, Uint32Array);
    for (const images of [data.id_images, data.ood_images]) images.splits = unpack(images.splits, Uint8Array);
    for (const method of Object.values(data.methods)) {
      for (const name of ["unknown", "known"]) method[name] = unpack(method[name], Uint8Array);
      method.alarms.image = unpack(method.alarms.image, Uint32Array);
      for (const name of ["operating", "tau"]) method.alarms[name] = unpack(method.alarms[name], Uint8Array);
    }
    return data;
  }

  // Regions choose by falling confidence, as they are stored, the free object that they prefer; 1 for each object that is taken.
  function taken(pairs, chooses, objects, reusable, takesFirst) {
    const isTaken = new Uint8Array(objects);
    let start = 0;
    for (let region = 0; region < pairs.end.length; region += 1) {
      const end = pairs.end[region];
      if (chooses(region)) {
        const last = takesFirst ? Math.min(start + 1, end) : end;
        for (let place = start; place < last; place += 1) {
          const object = pairs.object[place];
          if (isTaken[object] && !reusable?.[object]) continue;
          isTaken[object] = 1;
          break;
        }
      }
      start = end;
    }
    return isTaken;
  }

  // Proposals are called unknown at the run's own t* only.
  const calls = (data, { operating, objectness }) => objectness !== NONE && operating === data.own;

  // The outcome of each unknown object.
  function outcomesOf(data, setting) {
    const { unknown, keeps } = data;
    const level = data.methods[setting.method].unknown;
    const objects = data.object_image.length;
    const isDetection = (region) => unknown.operating[region] >= setting.operating;
    const isFlagged = (region) => isDetection(region) && level[region] <= setting.tau;
    const isFound = taken(unknown, isFlagged, objects, null, data.takes_first);

    const outcomes = new Uint8Array(objects);
    let start = 0;
    for (let region = 0; region < unknown.end.length; region += 1) {
      const end = unknown.end[region];
      if (keeps[region] && isDetection(region) && level[region] > setting.tau) {
        for (let place = start; place < end; place += 1) outcomes[unknown.object[place]] = MISCLASSIFIED;
      }
      start = end;
    }
    for (let object = 0; object < objects; object += 1) {
      if (isFound[object]) outcomes[object] = FOUND;
      const isMissed = outcomes[object] === MISSED;
      if (isMissed && calls(data, setting) && data.recovered[object] > setting.objectness) outcomes[object] = RECOVERED;
    }
    return outcomes;
  }

  // Whether each ID image raises a false alarm, 0 or 1.
  function alarmsOf(data, setting) {
    const { image, operating, tau } = data.methods[setting.method].alarms;
    const alarms = new Uint8Array(data.id_images.names.length);
    image.forEach((one, row) => {
      if (operating[row] >= setting.operating && tau[row] <= setting.tau) alarms[one] = 1;
    });
    if (calls(data, setting)) {
      data.called.forEach((level, one) => { if (level > setting.objectness) alarms[one] = 1; });
    }
    return alarms;
  }

  // Whether each known object is detected as its class, 0 or 1.
  function detected(data, method, operating, tau) {
    const level = data.methods[method].known;
    const isKept = (region) => data.known.operating[region] >= operating && level[region] > tau;
    return taken(data.known, isKept, data.reusable.length, data.reusable, false);
  }

  // Number of known objects, and of those that are lost: detected at the run's own t* without flagging, but not now.
  function lostOf(data, { method, operating, tau }) {
    const before = detected(data, method, data.own, NEVER_FLAGGED);
    const now = detected(data, method, operating, tau);
    let [known, lost] = [0, 0];
    data.reusable.forEach((isReusable, object) => {
      if (isReusable) return;
      known += 1;
      if (before[object] && !now[object]) lost += 1;
    });
    return { known, lost };
  }

  const sum = (flags) => flags.reduce((total, one) => total + one, 0);

  // All counts of a setting.
  function countsOf(data, setting) {
    const counts = [0, 0, 0, 0];
    outcomesOf(data, setting).forEach((outcome) => { counts[outcome] += 1; });
    return {
      objects: data.object_image.length,
      found: counts[FOUND] + counts[RECOVERED],
      byProposals: counts[RECOVERED],
      misclassified: counts[MISCLASSIFIED],
      missed: counts[MISSED],
      images: data.id_images.names.length,
      alarms: sum(alarmsOf(data, setting)),
      ...lostOf(data, setting),
    };
  }

  // Shares of ID images with a false alarm and of unknown objects found, over τ, at the t* and proposals of a setting.
  function curveOf(data, setting) {
    const stops = data.methods[setting.method].taus.length;
    const step = Math.max(1, stops / CURVE_POINTS);
    const points = [];
    for (let place = 0; place < stops; place += step) {
      const at = { ...setting, tau: Math.floor(place) };
      const outcomes = outcomesOf(data, at);
      let found = 0;
      outcomes.forEach((outcome) => { if (outcome >= FOUND) found += 1; });
      points.push([sum(alarmsOf(data, at)) / data.id_images.names.length, found / outcomes.length]);
    }
    return points;
  }

  const arrived = new Map(); // run → its data
  Object.assign(dial, {
    unpackAll, outcomesOf, alarmsOf, lostOf, countsOf, curveOf,
    // Called by the scripts with data: a page that is opened from disk may not fetch.
    add(run, data) { arrived.set(run, unpackAll(data)); },
    // The data of a run, once its script is loaded.
    load(run, file) {
      if (arrived.has(run)) return Promise.resolve(arrived.get(run));
      return new Promise((done, failed) => {
        const script = document.createElement("script");
        script.src = file;
        script.onload = () => (arrived.has(run) ? done(arrived.get(run)) : script.onerror());
        script.onerror = () => failed(new Error(`${file} is not beside this page, or is damaged: build the report again.`));
        document.head.append(script);
      });
    },
  });
}
