"use strict";
// What tables and charts share to save files.
const saving = {
  save: (name, type, content) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href));
  },

  // Text in Markdown: no link, picture, element, emphasis or formula, and no end of a table's cell.
  markdown: (text) => text.replace(/[\\`*_[\]~$]/g, "\\$&").replace(/[&<>|]/g, (letter) => `&#${letter.charCodeAt(0)};`),

  // Lines of texts as CSV. A spreadsheet would take a text that begins with one of these for a formula.
  csv: (lines) => {
    const guarded = (text) => (/^'*[=+\-@\t\r\n＝＋－＠]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text);
    const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    return lines.map((line) => line.map(guarded).map(quoted).join(",") + "\n").join("");
  },
};
