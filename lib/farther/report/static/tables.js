"use strict";
// Tables that are sorted, filtered and saved. Each is in a <section class="sheet"> with its controls.
{
  const text = (cell) => cell.textContent.trim();
  const number = (cell) => parseFloat(text(cell));
  const shown = (element) => !element.hidden;

  // ------------------------------------------------------------------------------------------------------------ saving

  const toCsv = ({ columns, rows, withIntervals }) => {
    const bounds = (cell) => (cell.dataset.i ?? "[, ]").slice(1, -1).split(", ");
    const heads = columns.flatMap(({ name, isLabel }) =>
      isLabel || !withIntervals ? [name] : [name, `${name} low`, `${name} high`]);
    const lines = rows.map((cells) => cells.flatMap((cell) => {
      const value = text(cell) === "—" ? "" : cell.dataset.run ?? text(cell).replace("†", "");
      return cell.tagName === "TH" || !withIntervals ? [value] : [value, ...bounds(cell)];
    }));
    return saving.csv([heads, ...lines]);
  };

  const written = (cell, withIntervals) => {
    const interval = withIntervals && cell.dataset.i;
    return interval ? `${text(cell)} ${interval}` : text(cell);
  };

  const LEGEND = "Bold: best; underlined: second best; †: not significantly different from the best; ";

  const toMarkdown = ({ caption, columns, rows, withIntervals }) => {
    const one = (cell) => {
      const value = saving.markdown(written(cell, withIntervals));
      if (cell.classList.contains("few")) return `(${value})`;
      if (cell.querySelector("strong")) return `**${value}**`;
      return cell.querySelector("u") ? `<ins>${value}</ins>` : value;
    };
    const heads = columns.map(({ name, arrow }) => saving.markdown(arrow ? `${name} ${arrow}` : name));
    const rule = columns.map(({ isLabel }) => (isLabel ? "---" : "---:"));
    const body = [heads, rule, ...rows.map((cells) => cells.map(one))];
    const table = body.map((line) => `| ${line.join(" | ")} |\n`).join("");
    return `${saving.markdown(caption)}\n\n${table}\n${LEGEND}in brackets: from too few to compare.\n`;
  };

  const toLatex = ({ name, caption, columns, groups, rows, withIntervals }) => {
    const named = {
      "\\": "textbackslash", "~": "textasciitilde", "^": "textasciicircum", "<": "textless", ">": "textgreater",
      "|": "textbar", '"': "textquotedbl",
    };
    const math = { "—": "--", "†": "$^\\dagger$", "τ": "$\\tau$", "≥": "$\\geq$", "±": "$\\pm$", "×": "$\\times$", "−": "$-$" };
    const escaped = (value) => value
      .replace(/[&%$#_{}\\~^<>|"]/g, (letter) => (letter in named ? `\\${named[letter]}{}` : `\\${letter}`))
      .replace(/[—†τ≥±×−]/g, (letter) => math[letter]);
    const one = (cell) => {
      const value = escaped(written(cell, withIntervals));
      if (cell.classList.contains("few")) return `\\textcolor{gray}{${value}}`;
      if (cell.querySelector("strong")) return `\\textbf{${value}}`;
      return cell.querySelector("u") ? `\\underline{${value}}` : value;
    };
    const labels = columns.filter(({ isLabel }) => isLabel);
    let start = labels.length + 1;
    const rules = groups.map(({ span }) => `\\cmidrule(lr){${start}-${(start += span) - 1}}`);
    const over = groups.map(({ title, span }) => `\\multicolumn{${span}}{c}{${escaped(title)}}`);
    const from = groups.map(({ counts, span }) => `\\multicolumn{${span}}{c}{\\footnotesize ${escaped(counts)}}`);
    const line = (cells) => `${cells.join(" & ")} \\\\`;
    return [
      "% \\usepackage{booktabs,adjustbox,xcolor}", "\\begin{table}", "\\centering", `\\caption{${escaped(caption)}}`, `\\label{tab:${name.replaceAll("_", "-")}}`,
      "\\begin{adjustbox}{max width=\\textwidth}", `\\begin{tabular}{${columns.map(({ isLabel }) => (isLabel ? "l" : "r")).join("")}}`, "\\toprule",
      line([...labels.map(() => ""), ...over]),
      ...(groups.some(({ counts }) => counts) ? [line([...labels.map(() => ""), ...from])] : []), rules.join(" "),
      line(columns.map(({ isLabel, name, latex }) => (isLabel ? escaped(name) : latex))), "\\midrule",
      ...rows.map((cells) => line(cells.map(one))),
      "\\bottomrule", "\\end{tabular}", "\\end{adjustbox}", "",
      `\\smallskip\\footnotesize ${escaped(`${LEGEND}grey: from too few to compare.`)}`, "\\end{table}", "",
    ].join("\n");
  };

  const FORMATS = { csv: toCsv, md: toMarkdown, tex: toLatex };

  // ------------------------------------------------------------------------------------------------------------ a sheet

  const prepare = (section) => {
    const table = section.querySelector("table");
    const body = table.tBodies[0];
    const original = [...body.rows];
    const groups = [...table.querySelectorAll("th.group")];
    const heads = [...table.querySelectorAll("thead th:not(.group)")];
    const labels = heads.filter((head) => head.dataset.label !== undefined);
    const columns = [...labels, ...heads.filter((head) => !labels.includes(head))];
    const controls = section.querySelector(".controls");
    const control = (name) => controls.querySelector(`[data-control="${name}"]`);

    const sort = (head) => {
      const place = columns.indexOf(head);
      const rises = head.dataset.rises !== undefined;
      const isLabel = labels.includes(head);
      // The first click puts the best on top, the second reverses the order, the third restores the first order.
      const first = isLabel || !rises ? "ascending" : "descending";
      const second = first === "ascending" ? "descending" : "ascending";
      const next = { none: first, [first]: second, [second]: "none" }[head.getAttribute("aria-sort")];
      columns.forEach((one) => one.setAttribute("aria-sort", one === head ? next : "none"));
      const sign = next === "ascending" ? 1 : -1;
      const compare = isLabel
        ? (a, b) => sign * text(a.cells[place]).localeCompare(text(b.cells[place]), undefined, { numeric: true })
        : (a, b) => {
            const [x, y] = [number(a.cells[place]), number(b.cells[place])];
            return Number.isNaN(x) || Number.isNaN(y) ? Number.isNaN(x) - Number.isNaN(y) : sign * (x - y);
          };
      body.append(...(next === "none" ? original : [...original].sort(compare)));
    };

    const filterRows = () => {
      const wanted = labels.map((_, place) => control(`label-${place}`)?.value ?? "");
      const words = control("search").value.toLowerCase().split(/\s+/);
      for (const row of original) {
        const values = labels.map((_, place) => text(row.cells[place]));
        const all = values.join(" ").toLowerCase();
        row.hidden = !(wanted.every((one, place) => one === "" || one === values[place])
          && words.every((word) => all.includes(word)));
      }
      control("count").textContent = `${original.filter(shown).length} of ${original.length} rows`;
    };

    const filterColumns = () => {
      const [split, metric] = ["split", "metric"].map((name) => control(name)?.value ?? "");
      columns.forEach((head, place) => {
        if (labels.includes(head)) return;
        const hide = (split !== "" && split !== head.dataset.split) || (metric !== "" && metric !== head.dataset.metric);
        if (head.hidden === hide) return;
        head.hidden = hide;
        original.forEach((row) => { row.cells[place].hidden = hide; });
      });
      for (const group of groups) {
        const span = columns.filter((head) => shown(head) && head.dataset.split === group.dataset.split).length;
        group.hidden = span === 0;
        group.colSpan = span || 1;
      }
    };

    const content = () => ({
      name: section.dataset.name,
      caption: text(section.querySelector(".caption")),
      withIntervals: control("intervals").checked,
      groups: groups.filter(shown).map((group) => ({
        title: group.dataset.split, span: group.colSpan, counts: group.querySelector("small")?.textContent ?? "",
      })),
      columns: columns.filter(shown).map((head) => ({
        isLabel: labels.includes(head),
        name: head.dataset.label ?? `${head.dataset.split} ${head.dataset.metric}`,
        arrow: head.dataset.arrow,
        latex: head.dataset.latex,
      })),
      rows: [...body.rows].filter(shown).map((row) => [...row.cells].filter(shown)),
    });

    columns.forEach((head) => head.querySelector("button").addEventListener("click", () => sort(head)));
    controls.addEventListener("input", () => { filterRows(); filterColumns(); });
    control("intervals").addEventListener("input", (event) => {
      table.classList.toggle("with-intervals", event.target.checked);
    });
    controls.querySelectorAll("[data-save]").forEach((button) => button.addEventListener("click", () => {
      saving.save(`${section.dataset.name}.${button.dataset.save}`, "text/plain", FORMATS[button.dataset.save](content()));
    }));
    filterRows();
    filterColumns();
    controls.hidden = false;
  };

  document.querySelectorAll("section.sheet").forEach(prepare);
}
