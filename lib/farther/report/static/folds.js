// Opens the folded section that the address names, also when a link on the same page changes it.
"use strict";

function openNamedFold() {
  const name = decodeURIComponent(location.hash.slice(1));
  const section = name && document.getElementById(name);
  const fold = section && section.closest("details");
  if (fold) {
    fold.open = true;
    section.scrollIntoView();
  }
}

window.addEventListener("hashchange", openNamedFold);
openNamedFold();
