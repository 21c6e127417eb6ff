// Opens the folded section that the address names, also when a link on the same page changes it.
"use strict";

// What the address names. Charts above it that are drawn later move it away: until the reader moves, it is kept in view.
let named = null;

function openNamedFold() {
  const name = decodeURIComponent(location.hash.slice(1));
  named = name && document.getElementById(name);
  const fold = named && named.closest("details");
  if (fold) fold.open = true;
  keepInView();
}

function keepInView() {
  if (named) named.scrollIntoView();
}

for (const move of ["wheel", "touchstart", "pointerdown", "keydown"]) {
  window.addEventListener(move, () => { named = null; }, { passive: true });
}
window.addEventListener("hashchange", openNamedFold);
new ResizeObserver(keepInView).observe(document.body);
openNamedFold();
