"use strict";
// Buttons that copy the text of an element: <button data-copy="its id">.
document.querySelectorAll("[data-copy]").forEach((button) => {
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    getSelection().selectAllChildren(source);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected: copy it with Ctrl+C";
    }
  });
  button.hidden = false;
});
