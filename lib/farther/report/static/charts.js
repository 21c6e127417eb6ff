"use strict";
{
  const config = {
    font: "system-ui, sans-serif",
    background: "transparent",
    axis: { labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 160, gridColor: "#e5e7eb" },
    view: { stroke: null },
  };
  const actions = { export: true, source: false, compiled: false, editor: false };
  const waiting = [...document.querySelectorAll(".chart[data-spec]")];

  const draw = (place) => {
    const spec = JSON.parse(document.getElementById(place.dataset.spec).textContent);
    return vegaEmbed(place, spec, { renderer: "svg", config, actions }).catch((error) => {
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
  next();
}
