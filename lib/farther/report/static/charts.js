"use strict";
{
  // The page's colours of text and lines, light or dark.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // As figures of a paper, in these colours; legends are above the charts.
  const config = () => ({
    ...figures.config,
    font: "system-ui, sans-serif",
    background: "transparent",
    padding: 5,
    legend: { disable: true },
    axis: {
      ...figures.config.axis,
      gridColor: colour("--line"), domainColor: colour("--soft"), tickColor: colour("--soft"),
      labelColor: colour("--ink"), titleColor: colour("--ink"),
    },
  });
  const places = [...document.querySelectorAll(".chart[data-spec]")];
  let waiting = [...places];

  // Lines of `series,point,x,y`. Vega's own reader of CSV makes a function of the heading, which the page's policy forbids.
  const ROW = /^(?:"((?:[^"]|"")*)"|([^,\n]*)),([^,\n]*),([^,\n]*),([^,\n]*)$/gm;
  const rows = (csv) =>
    [...csv.matchAll(ROW)].slice(1).map(([, quoted, plain, ...numbers]) => {
      const [point, x, y] = numbers.map((text) => (text === "" ? null : Number(text)));
      return { series: quoted?.replaceAll('""', '"') ?? plain, point, x, y };
    });

  const specOf = (text) => {
    const spec = JSON.parse(text);
    if (spec.data?.format?.type === "csv") spec.data = { values: rows(spec.data.values) };
    return spec;
  };

  const draw = (place) => {
    const text = document.getElementById(place.dataset.spec).textContent;
    const spec = specOf(text.replaceAll('"#000000"', JSON.stringify(colour("--ink"))));
    // `ast`: expressions are interpreted instead of compiled, for the same reason.
    return vegaEmbed(place, spec, { renderer: "svg", ast: true, config: config(), actions: false, defaultStyle: false }).then(() => {
      // The picture has the text, as an element with a menu in it must not be a picture.
      const svg = place.querySelector("svg.marks");
      ["role", "aria-label", "aria-roledescription"].forEach((name) => place.removeAttribute(name));
      svg.querySelectorAll("[role]").forEach((part) => {
        ["role", "aria-roledescription", "aria-label"].forEach((name) => part.removeAttribute(name));
      });
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", spec.description);
      place.append(figures.menu(place.dataset.spec, specOf(text)));
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
