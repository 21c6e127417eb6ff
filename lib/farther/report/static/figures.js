"use strict";
// Charts as figures of a paper: the menu that saves one, as SVG and PNG at the width of one and of two columns, and its
// numbers as CSV. `farther open --export` writes the same files, and PDF.
const figures = JSON.parse(document.getElementById("figure-style").textContent);
{
  const { inches, pixels, dpi, config } = figures;
  const { save, csv } = saving;

  // A figure of a paper has no links, nor its numbers addresses.
  const withoutLinks = (spec) => {
    if (!spec.encoding?.href) return spec;
    const { href, ...encoding } = spec.encoding;
    const values = spec.data.values.map((row) => ({ ...row, [href.field]: undefined }));
    return { ...spec, encoding, data: { ...spec.data, values: JSON.parse(JSON.stringify(values)) } };
  };

  // The legend shows the dashes of lines, also where points lie on them.
  const withDashes = (spec) => {
    const { encoding, layer } = spec;
    const legend = { symbolType: "stroke", symbolSize: 500 };
    const dashed = encoding?.strokeDash && {
      encoding: { ...encoding, color: { ...encoding.color, legend }, strokeDash: { ...encoding.strokeDash, legend } },
    };
    return { ...spec, ...dashed, ...(layer && { layer: layer.map(withDashes) }) };
  };

  const drawn = async (spec, width) => {
    const { entry, subject } = spec.usermeta;
    const isNamed = !subject || spec.usermeta.title.includes(subject);
    const title = isNamed ? spec.usermeta.title : `${spec.usermeta.title}, ${subject}`;
    const legend = { ...config.legend, columns: Math.max(1, Math.floor((width * pixels) / entry)) };
    const lines = title.match(new RegExp(`.{1,${Math.floor((width * pixels) / 7)}}(?:\\s|$)`, "g"));
    const autosize = { type: "fit-x", contains: "padding" };
    const figure = { ...withDashes(spec), title: lines, width: width * pixels, autosize };
    const options = { renderer: "svg", ast: true, actions: false, defaultStyle: false, config: { ...config, legend } };
    return (await vegaEmbed(document.createElement("div"), figure, options)).view;
  };

  const asSvg = async (view) =>
    (await view.toSVG()).replace(/width="([\d.]+)" height="([\d.]+)"/, (_, width, height) =>
      `width="${(width / pixels).toFixed(3)}in" height="${(height / pixels).toFixed(3)}in"`);

  const asPng = async (view) => {
    const canvas = await view.toCanvas(dpi / pixels);
    return new Promise((done) => { canvas.toBlob(done, "image/png"); });
  };

  const asCsv = (spec) => {
    const tables = [spec, ...(spec.layer ?? [])].filter((one) => one.data).map((one) => JSON.stringify(one.data.values));
    const rows = [...new Set(tables)].flatMap((table) => JSON.parse(table));
    const names = [...new Set(rows.flatMap(Object.keys))];
    return csv([names, ...rows.map((row) => names.map((name) => `${row[name] ?? ""}`))]);
  };

  const button = (text, click) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", click);
    return made;
  };

  // The menu of a chart; `id` begins its files' names, after the run that the chart is of.
  figures.menu = (id, linked) => {
    const spec = withoutLinks(linked);
    const { run } = spec.usermeta;
    const name = run ? `${run}-${id}` : id;
    const menu = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "⋯";
    summary.ariaLabel = "Save this chart";
    const choices = inches.flatMap((width) => [
      button(`SVG, ${width} in`, async () => save(`${name}-${width}in.svg`, "image/svg+xml", await asSvg(await drawn(spec, width)))),
      button(`PNG, ${width} in`, async () => save(`${name}-${width}in.png`, "image/png", await asPng(await drawn(spec, width)))),
    ]);
    const list = document.createElement("div");
    list.append(...choices, button("CSV, its numbers", () => save(`${name}.csv`, "text/csv", asCsv(spec))));
    menu.className = "save";
    menu.append(summary, list);
    menu.addEventListener("click", (event) => { if (event.target.type === "button") menu.open = false; });
    return menu;
  };
}
