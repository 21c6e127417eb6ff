"use strict";
{
  // The page's colours of text and lines, light or dark.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const config = () => ({
    font: "system-ui, sans-serif",
    background: "transparent",
    axis: {
      labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 160,
      gridColor: colour("--line"), domainColor: colour("--soft"), tickColor: colour("--soft"),
      labelColor: colour("--ink"), titleColor: colour("--ink"),
    },
    view: { stroke: null },
  });
  const actions = { export: true, source: false, compiled: false, editor: false };
  const places = [...document.querySelectorAll(".chart[data-spec]")];
  let waiting = [...places];

  // Lines of `series,point,x,y`. Vega's own reader of CSV makes a function of the heading, which the page's policy forbids.
  const rows = (csv) =>
    csv.trimEnd().split("\n").slice(1).map((line) => {
      const [, name, ...numbers] = /^(.*),([^,]*),([^,]*),([^,]*)$/.exec(line);
      const [point, x, y] = numbers.map((text) => (text === "" ? null : Number(text)));
      const series = name.startsWith('"') ? name.slice(1, -1).replaceAll('""', '"') : name;
      return { series, point, x, y };
    });

  const draw = (place) => {
    const text = document.getElementById(place.dataset.spec).textContent;
    const spec = JSON.parse(text.replaceAll('"#000000"', JSON.stringify(colour("--ink"))));
    if (spec.data?.format?.type === "csv") spec.data = { values: rows(spec.data.values) };
    // `ast`: expressions are interpreted instead of compiled, for the same reason.
    return vegaEmbed(place, spec, { renderer: "svg", ast: true, config: config(), actions }).then(() => {
      // The picture has the text, as an element with a menu in it must not be a picture.
      const svg = place.querySelector("svg.marks");
      ["role", "aria-label"].forEach((name) => place.removeAttribute(name));
      svg.querySelectorAll("[role]").forEach((part) => {
        ["role", "aria-roledescription", "aria-label"].forEach((name) => part.removeAttribute(name));
      });
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", spec.description);
      const menu = place.querySelector("summary");
      menu.setAttribute("aria-label", "Save this chart");
      menu.querySelector("svg").setAttribute("aria-hidden", "true");
    }).catch((error) => {
      place.textContent = `No chart: ${error.message}`;
    });
  };

  // One after the other, so that the page can be read and scrolled meanwhile. What is folded away is drawn when it is
  // opened, because only then its width is known.
  const next = async () => {
    const place = waiting.find((one) => one.offsetParent !== null);
    if (!place) return;
    waiting.splice(waiting.indexOf(place), 1);
    await draw(place);
    setTimeout(next);
  };
  document.querySelectorAll("details.fold").forEach((one) => one.addEventListener("toggle", next));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    waiting = [...places];
    next();
  });
  next();
}
